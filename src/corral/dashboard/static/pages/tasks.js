// Tasks: find them, see them change, and act on many at once.
import { html, useEffect, useRef, useState } from "../core/dom.js";
import { get, may, part, post, del } from "../core/api.js";
import { useData } from "../core/live.js";
import { useTasks, isEnded } from "../core/tasks.js";
import { eachTold, everyTold, plural } from "../core/bulk.js";
import { Link, setQuery } from "../core/router.js";
import { brief, count, duration, NONE } from "../core/format.js";
import { Card, Page } from "../parts/page.js";
import { Badge, Labels } from "../parts/badge.js";
import { Table } from "../parts/table.js";
import { Ago, Since } from "../parts/time.js";
import { Empty, Fault, Skeleton } from "../parts/state.js";
import { Command } from "../parts/copy.js";
import { confirm } from "../parts/dialog.js";
import { toast } from "../parts/toast.js";

const STATES = [
  ["", "Any state"], ["queued", "Queued"], ["running", "Running"], ["completed", "Completed"],
  ["failed,error,timed_out", "Failed"], ["cancelled", "Cancelled"], ["timed_out", "Timed out"],
];
const FILTERS = ["status", "type", "model", "worker", "label", "schedule", "search"];

const took = (row) => (row.status === "running" ? html`<${Since} at=${row.started_at} />` : duration(row.duration));

const COLUMNS = [
  { name: "status", title: "State", cell: (row) => html`<${Badge} state=${row.status} />` },
  { name: "type", title: "Type", isMain: true, cell: (row) => row.task_type, under: (row) => (row.error ? row.error.message : [row.model_name, ...Object.entries(row.labels).map(([key, value]) => `${key}=${value}`)].filter(Boolean).join(" · ") || row.task_id) },
  { name: "task", title: "Task", isExtra: true, cell: (row) => html`<${Link} to=${`/tasks/${part(row.task_id)}`} class="mono" title=${row.task_id} tabindex="-1">${brief(row.task_id, 18)}</${Link}>` },
  { name: "model", title: "Model", isExtra: true, cell: (row) => row.model_name ?? NONE },
  { name: "worker", title: "Worker", isExtra: true, cell: (row) => (row.worker_id ? html`<${Link} to=${`/workers/${part(row.worker_id)}`} class="mono" tabindex="-1">${brief(row.worker_id, 12)}</${Link}>` : NONE) },
  { name: "created", title: "Submitted", cell: (row) => html`<${Ago} at=${row.created_at} />`, under: (row) => (row.started_at ? html`${row.status === "running" ? "for" : "took"} ${took(row)}` : "") },
  { name: "took", title: "Took", isNumber: true, isExtra: true, cell: took },
  { name: "note", title: "Note", isExtra: true, cell: (row) => (row.error ? html`<span class=${row.status === "cancelled" ? "hint" : "soft-bad"} title=${row.error.message}>${row.error.message}</span>` : html`<${Labels} labels=${row.labels} />`) },
];

// Text that takes effect when one stops typing.
function Typed({ name, label, value, ...more }) {
  const [text, setText] = useState(value ?? "");
  const timer = useRef(0);
  useEffect(() => setText(value ?? ""), [value]);
  const type = (event) => {
    const typed = event.target.value;
    setText(typed);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ [name]: typed.trim() }), 300);
  };
  return html`<input type="search" aria-label=${label} placeholder=${label} value=${text} onInput=${type} ...${more} />`;
}

function Filters({ query }) {
  const types = useData("/job-types", { events: ["job_type_changed"] });
  const names = (types.data?.job_types ?? []).map((one) => one.name);
  if (query.type && !names.includes(query.type)) names.push(query.type);
  const isAny = FILTERS.some((name) => query[name]);
  return html`
    <div class="filters" role="search" aria-label="Filter tasks">
      <${Typed} name="search" label="Search id, type, error…" value=${query.search} class="grows" />
      <select aria-label="State" value=${query.status ?? ""} onChange=${(event) => setQuery({ status: event.target.value })}>
        ${STATES.map(([value, text]) => html`<option key=${value} value=${value} selected=${value === (query.status ?? "")}>${text}</option>`)}
      </select>
      <select aria-label="Type" value=${query.type ?? ""} onChange=${(event) => setQuery({ type: event.target.value })}>
        <option value="">Any type</option>
        ${names.map((name) => html`<option key=${name} value=${name} selected=${name === query.type}>${name}</option>`)}
      </select>
      <${Typed} name="model" label="Model" value=${query.model} size="12" />
      <${Typed} name="worker" label="Worker id" value=${query.worker} size="14" />
      <${Typed} name="label" label="Label key=value" value=${query.label} size="15" />
      <${Typed} name="schedule" label="Schedule" value=${query.schedule} size="12" />
      ${isAny && html`<button onClick=${() => setQuery(Object.fromEntries(FILTERS.map((name) => [name, ""])))}>Clear</button>`}
    </div>
  `;
}

const labelOf = (text) => (text && !text.includes(":") ? text.replace("=", ":") : text);

function Chosen({ rows, chosen, setChosen, reload }) {
  const picked = rows.filter((row) => chosen.has(row.task_id));
  const live = picked.filter((row) => !isEnded(row.status)).map((row) => row.task_id);
  const ended = picked.filter((row) => isEnded(row.status)).map((row) => row.task_id);
  const cancel = async () => {
    const text = "What runs is stopped where it runs. They can be run again later.";
    if (!(await confirm({ title: `Cancel ${plural(live.length, "task")}?`, text, action: "Cancel them", isGrave: true }))) return;
    await eachTold(live, (id) => del(`/tasks/${part(id)}`), "task", "cancelled");
    setChosen(new Set());
    reload();
  };
  const again = async () => {
    const text = "Each runs anew under its own id, with the same input. What it did before is kept in its attempts.";
    if (!(await confirm({ title: `Run ${plural(ended.length, "task")} again?`, text, action: "Run again" }))) return;
    await eachTold(ended, (id) => post(`/tasks/${part(id)}/requeue`), "task", "queued again");
    setChosen(new Set());
    reload();
  };
  return html`
    <b>${count(picked.length)} chosen</b>
    <button class="small grave" disabled=${!live.length} onClick=${cancel}>Cancel ${live.length || ""}</button>
    <button class="small" disabled=${!ended.length} onClick=${again}>Run again ${ended.length || ""}</button>
    <button class="small" onClick=${() => setChosen(new Set())}>None</button>
  `;
}

const LIVE = ["queued", "running"];
const FAILED = ["failed", "error", "timed_out"];
const wanted = (status, able, unsaid) => (status ? status.split(",").filter(able) : unsaid).join(",");

// Acts on every task the filters find, seen or not; first it says how many those are.
function Matching({ asked, reload }) {
  const live = wanted(asked.status, (state) => LIVE.includes(state), LIVE);
  const ended = wanted(asked.status, isEnded, FAILED);
  const all = async (path, status, ask, done) => {
    const query = { ...asked, status };
    const { total } = await get("/tasks", { ...query, limit: 1, results: false });
    if (!total) return toast(`None of them ${path.endsWith("cancel") ? "waits or runs" : "has failed"}`);
    if (!(await confirm(ask(plural(total, "task"))))) return;
    await everyTold(path, query, "task", done);
    reload();
  };
  const cancel = () => all("/tasks/cancel", live, (many) => ({
    title: `Cancel ${many} that match?`, text: "All that the filters find and that wait or run, also those further down. What runs is stopped where it runs.", action: `Cancel ${many}`, isGrave: true,
  }), "cancelled");
  const again = () => all("/tasks/requeue", ended, (many) => ({
    title: `Run ${many} again?`, text: `All that the filters find and that ${asked.status ? "have ended so" : "failed"}, also those further down. Each runs anew under its own id, with the same input.`, action: `Run ${many} again`,
  }), "queued again");
  const safe = (doing) => () => doing().catch((error) => toast(error.message, "bad"));
  return html`
    ${live && html`<button class="small grave" onClick=${safe(cancel)}>Cancel all…</button>`}
    ${ended && html`<button class="small" onClick=${safe(again)}>Run all again…</button>`}
  `;
}

export default function Tasks({ query }) {
  const [chosen, setChosen] = useState(new Set());
  const frame = useRef();
  const isOver = useRef(false);
  // Nobody points at a row, has one in focus or has scrolled: rows may move.
  const isCalm = () => {
    const box = frame.current?.querySelector(".table-box");
    return !isOver.current && (box?.scrollTop ?? 0) === 0 && !box?.contains(document.activeElement) && scrollY < 80 && chosen.size === 0;
  };
  const label = labelOf(query.label);
  const isBadLabel = Boolean(label) && !label.includes(":");
  const asked = { status: query.status, task_type: query.type, model_name: query.model, worker_id: query.worker, label: isBadLabel ? undefined : label, schedule: query.schedule, search: query.search };
  const list = useTasks(asked, isCalm);
  const { rows, total, fresh, error, isLoading } = list;
  const isFiltered = FILTERS.some((name) => query[name]);
  const empty = isFiltered
    ? html`<${Empty} title="No task is like that" hint="Change the filters, or clear them." />`
    : html`<${Empty} title="No tasks yet" hint="Submit the first one here, or from a terminal:"><${Command}>${`corral run echo '{"message": "hello"}'`}</${Command}></${Empty}>`;
  const aside = chosen.size
    ? html`<${Chosen} rows=${rows} chosen=${chosen} setChosen=${setChosen} reload=${list.reload} />`
    : html`${fresh > 0 && html`<button class="small main" onClick=${() => { frame.current?.querySelector(".table-box")?.scrollTo(0, 0); list.reload(); }}>Show ${plural(fresh, "new task")}</button>`}
        <span role="status">${total === null ? "" : plural(total, "task")}</span>
        ${isFiltered && !isBadLabel && total > 0 && may("submit") && html`<${Matching} asked=${asked} reload=${list.reload} />`}`;
  return html`<${Page} title="Tasks" actions=${may("submit") && html`<${Link} to="/submit" class="button main">Submit a task</${Link}>`}>
    <${Filters} query=${query} />
    ${isBadLabel && html`<p class="hint">A label reads key=value.</p>`}
    <${Card} title=${isFiltered ? "Tasks that match, newest first" : "All tasks, newest first"} aside=${aside}>
      ${error && html`<${Fault} error=${error} retry=${list.reload} />`}
      <div ref=${frame} onPointerEnter=${() => (isOver.current = true)} onPointerLeave=${() => (isOver.current = false)}>
        ${isLoading && !rows.length
          ? html`<${Skeleton} lines=${8} />`
          : html`<${Table} label="Tasks" rows=${rows} id=${(row) => row.task_id} columns=${COLUMNS} total=${total ?? undefined}
              to=${(row) => `/tasks/${part(row.task_id)}`} onEnd=${list.more} empty=${error ? html`<span />` : empty}
              selected=${may("submit") ? chosen : undefined} onSelect=${may("submit") ? setChosen : undefined} />`}
      </div>
    </${Card}>
  </${Page}>`;
}
