// One task: what became of it, why it waits or why it ran there, what it said and left.
import { html, useEffect, useState } from "../core/dom.js";
import { del, download, may, part, post } from "../core/api.js";
import { useData } from "../core/live.js";
import { useLogs, useOutput } from "../core/follow.js";
import { isEnded } from "../core/tasks.js";
import { Link, go } from "../core/router.js";
import { bytes, count, duration, percent, words, brief } from "../core/format.js";
import { Card, Facts, Page } from "../parts/page.js";
import { Badge, Labels } from "../parts/badge.js";
import { Bar } from "../parts/bar.js";
import { Table } from "../parts/table.js";
import { Ago } from "../parts/time.js";
import { Loaded } from "../parts/state.js";
import { Command, Copy, Json, pretty } from "../parts/copy.js";
import { Log, useEnd } from "../parts/log.js";
import { Timeline } from "../parts/timeline.js";
import { act } from "../parts/toast.js";
import { confirm } from "../parts/dialog.js";

const PRIORITIES = { "-10": "low", 0: "normal", 10: "high", 100: "critical" };
const priority = (value) => PRIORITIES[value] ?? String(value);

const CANDIDATES = [
  { name: "worker", title: "Worker", cell: (row) => html`<${Link} to=${`/workers/${part(row.worker_id)}`} class="mono">${row.worker_id}</${Link}>` },
  { name: "verdict", title: "Verdict", cell: (row) => html`<${Badge} state=${row.verdict} look=${row.verdict === "free" ? "good" : "wait"} />` },
  { name: "total", title: "Seconds", isNumber: true, cell: (row) => (row.cost ? row.cost.total_s.toFixed(1) : "–") },
  { name: "why", title: "Why", isExtra: true, isWide: true, cell: (row) => row.message },
];

function Explain({ told }) {
  const { headline, changes, candidates, candidates_total: total, placement, ahead, line, estimated_start: start } = told;
  return html`
    <p class="headline">${headline.replace(`Task ${told.task_id} `, "It ")}</p>
    ${changes.length > 0 && html`<h3>What would start it</h3><ul class="changes">
      ${changes.slice(0, 4).map((one, place) => html`<li key=${place}>${one.message}${one.command && html`<${Command}>${one.command}</${Command}>`}</li>`)}
    </ul>`}
    <${Facts} rows=${[
      ["Before it", ahead === null ? null : `${count(ahead)} of ${count(line)} in its line`],
      ["Expected to start", start && html`<${Ago} at=${start.at} />`],
      ["Should take", told.estimate && `${duration(told.estimate.duration)} (four of five: ${duration(told.estimate.low)} to ${duration(told.estimate.high)})`],
      ["Loaded for it", placement?.load],
      ["Dropped for it", placement?.unload?.join(", ")],
    ]} />
    ${candidates.length > 0 && html`<details class="more"><summary>${total === 1 ? "The worker" : `All ${count(total)} workers`}, and what keeps the task away</summary>
      <${Table} label="Candidates" rows=${candidates} id=${(row) => row.worker_id} columns=${CANDIDATES} />
      ${total > candidates.length && html`<p class="hint">The nearest ${candidates.length} are shown.</p>`}
    </details>`}
  `;
}

function Needs({ ids }) {
  const [found, setFound] = useState(new Map());
  useEffect(() => {
    post("/tasks/collect", { task_ids: ids.slice(0, 200) })
      .then((told) => setFound(new Map([...told.tasks.map((task) => [task.task_id, task.status]), ...told.pending.map((id) => [id, "queued"]), ...told.unknown.map((id) => [id, "unknown"])])))
      .catch(() => {});
  }, [ids.join()]);
  return html`<ul class="plain-list">${ids.slice(0, 200).map((id) => html`<li key=${id} class="row"><${Link} to=${`/tasks/${part(id)}`} class="mono">${id}</${Link}>
    ${found.has(id) && html`<${Badge} state=${found.get(id)}>${found.get(id) === "queued" ? "not ended yet" : words(found.get(id))}</${Badge}>`}</li>`)}</ul>`;
}

function Artifacts({ id, status }) {
  const left = useData(`/tasks/${part(id)}/artifacts`);
  useEffect(() => void (isEnded(status) && left.reload()), [status]);
  const files = left.data?.artifacts ?? [];
  if (!files.length) return null;
  const columns = [
    { name: "name", title: "File", isWide: true, cell: (row) => html`<span class="mono">${row.name}</span>`, sort: (row) => row.name },
    { name: "size", title: "Size", isNumber: true, cell: (row) => bytes(row.size), sort: (row) => row.size },
    { name: "get", title: html`<span class="hidden-text">Download</span>`, isNumber: true, cell: (row) =>
      html`<button class="small" aria-label="Download ${row.name}" onClick=${() => act(download(`/tasks/${part(id)}/artifacts/${row.name.split("/").map(part).join("/")}`, row.name.split("/").pop()))}>Download</button>` },
  ];
  return html`<${Card} title="Files it left" aside=${`${bytes(left.data.size)} of attempt ${left.data.attempt}`} wide>
    ${left.data.left_out && html`<p class="hint">${left.data.left_out}</p>`}
    <${Table} label="Files" rows=${files} id=${(row) => row.name} columns=${columns} sort="name" />
  </${Card}>`;
}

const spoken = (piece) => (typeof piece.value === "string" ? piece.value : piece.value?.text ?? piece.value?.delta ?? `${JSON.stringify(piece.value)}\n`);

function Output({ id, again }) {
  const told = useOutput(id, again);
  const end = useEnd(told.pieces.length);
  if (!told.pieces.length) return null;
  const text = told.pieces.map(spoken).join("");
  return html`<${Card} title="Streamed output" aside=${html`${!told.done && html`<${Badge} state="running">live</${Badge}>`}<${Copy} text=${text} />`} wide>
    ${told.skipped > 0 && html`<p class="hint">${count(told.skipped)} earlier pieces are no longer there.</p>`}
    <pre class="stream" ...${end} tabindex="0" role="log" aria-label="Streamed output" aria-live="off">${text}</pre>
  </${Card}>`;
}

function Actions({ task, reload }) {
  const id = part(task.task_id);
  const cancel = async () =>
    (await confirm({ title: "Cancel this task?", text: "If it runs, it is stopped where it runs. It can be run again later.", action: "Cancel it", isGrave: true })) &&
    (await act(del(`/tasks/${id}`), "The task is cancelled")) && reload();
  const again = async () => (await act(post(`/tasks/${id}/requeue`), "It is queued again")) && reload();
  if (!may("submit")) return null;
  return html`
    <button onClick=${() => go(`/submit?like=${id}`)}>Submit one like it</button>
    ${isEnded(task.status)
      ? html`<button class="main" onClick=${again}>Run again</button>`
      : html`<button class="grave" onClick=${cancel}>Cancel</button>`}
  `;
}

function Fields({ task }) {
  const link = (where, id) => id && html`<${Link} to=${`${where}/${part(id)}`} class="mono">${id}</${Link}>`;
  return html`<${Facts} rows=${[
    ["Type", task.task_type],
    ["Model", task.model_name && html`<${Link} to=${`/models/${part(task.model_name)}`}>${task.model_name}</${Link}>`],
    ["Worker", link("/workers", task.worker_id)],
    ["Node", link("/nodes", task.node_id)],
    ["Submitted", html`<${Ago} at=${task.created_at} />`],
    ["Started", task.started_at && html`<${Ago} at=${task.started_at} />`],
    ["Ended", task.completed_at && html`<${Ago} at=${task.completed_at} />`],
    ["Ran for", task.duration === null ? null : duration(task.duration)],
    ["Owner", task.owner],
    ["Priority", priority(task.priority)],
    ["Attempts", `${task.attempt}${task.retries ? `, ${task.retries} ${task.retries === 1 ? "retry" : "retries"} allowed` : ""}`],
    ["Time limit", task.timeout && duration(task.timeout)],
    ["Not before", task.run_after && html`<${Ago} at=${task.run_after} />`],
    ["Deadline", task.deadline && html`<${Ago} at=${task.deadline} />`],
    ["Labels", Object.keys(task.labels).length ? html`<${Labels} labels=${task.labels} />` : null],
    ["Resources", Object.entries(task.resources).map(([name, value]) => `${words(name)} ${value}`).join(", ")],
    ["Answered by", task.cached_from && html`the kept result of ${link("/tasks", task.cached_from)}`],
    ["Request", task.request_id && html`<span class="mono">${brief(task.request_id, 20)}</span>`],
  ]} />`;
}

const Trouble = ({ task }) =>
  task.error && html`<div class="fault" role="note"><p><b>${task.error.kind}</b>: ${task.error.message}</p>
    ${task.dead_letter && html`<p class="hint">It is a dead letter: ${words(task.dead_letter)}.</p>`}
    ${task.error.traceback && html`<details><summary>Traceback</summary><pre tabindex="0">${task.error.traceback}</pre></details>`}</div>`;

function Progress({ task, logs }) {
  if (task.status !== "running") return null;
  const known = logs.progress ?? task.progress;
  if (!known) return null;
  return html`<div class="progress"><${Bar} plain share=${known.fraction} label="Progress" text=${percent(known.fraction * 100)} /><span class="hint">${known.message}</span></div>`;
}

function Attempts({ task }) {
  // That of the last attempt stands above.
  const failed = task.attempts.filter((one) => one.error && !(one.attempt === task.attempt && task.error));
  if (!failed.length) return null;
  return html`<ul class="plain-list">${failed.map((one) => html`<li key=${one.attempt}><b>Attempt ${one.attempt}</b>, ${words(one.outcome)}
    ${one.worker_id && html` on <${Link} to=${`/workers/${part(one.worker_id)}`} class="mono">${one.worker_id}</${Link}>`}: ${one.error.message}
    ${one.error.traceback && html`<details><summary>Traceback</summary><pre tabindex="0">${one.error.traceback}</pre></details>`}</li>`)}</ul>`;
}

function Task({ task, id, reload }) {
  const isLive = !isEnded(task.status);
  const logs = useLogs(id, `${id} ${task.run}`);
  const explain = useData(`/tasks/${part(id)}/explain`, { query: { limit: 20 }, every: task.status === "queued" ? 3 : undefined });
  useEffect(() => void explain.reload(), [task.state]);
  // The log's long request tells of a new state even where no event came.
  useEffect(() => void (logs.status && logs.status !== task.status && reload()), [logs.status]);
  return html`
    <${Progress} task=${task} logs=${logs} />
    <${Trouble} task=${task} />
    <div class="cards">
      <${Card} title="Timeline" wide><${Timeline} task=${task} /><${Attempts} task=${task} /></${Card}>
      <${Card} title=${task.status === "queued" ? "Why it waits" : "Why there"} wide><${Loaded} from=${explain}>${(told) => html`<${Explain} told=${told} />`}</${Loaded}></${Card}>
      <${Card} title="Facts" wide><${Fields} task=${task} /></${Card}>
      ${task.depends_on.length > 0 && html`<${Card} title="It waits for" wide><${Needs} ids=${task.depends_on} /></${Card}>`}
      <${Output} id=${id} again=${`${id} ${task.run}`} />
      <${Card} title="Log" wide aside=${isLive && html`<${Badge} state="running">live</${Badge}>`}><${Log} lines=${logs.lines} name=${id} isLive=${isLive} /></${Card}>
      <${Card} title="Input" aside=${html`<${Copy} text=${pretty(task.parameters) ?? ""} />`}><${Json} value=${task.parameters} label="Input" /></${Card}>
      <${Card} title="Result" aside=${task.result !== null && html`<${Copy} text=${pretty(task.result) ?? ""} />`}>${task.result === null ? html`<p class="hint">${isLive ? "Not yet." : "There is none."}</p>` : html`<${Json} value=${task.result} label="Result" />`}</${Card}>
      <${Artifacts} id=${id} status=${task.status} />
    </div>
  `;
}

export default function TaskPage({ params: { id } }) {
  const found = useData(`/tasks/${part(id)}`, {
    events: ["tasks_changed"],
    matches: ({ data }) => data.tasks.some((task) => task.task_id === id) || data.more > 0,
  });
  const task = found.data;
  return html`<${Page} title=${task?.task_type ?? "Task"} tab=${task ? `${task.task_type} ${brief(id, 18)}` : "Task"} back=${["/tasks", "Tasks"]}
    lead=${task && html`<span class="row"><${Badge} state=${task.status} /><span class="mono">${id}</span><${Copy} text=${id} label="Copy id" /></span>`}
    actions=${task && html`<${Actions} task=${task} reload=${found.reload} />`}>
    <${Loaded} from=${found}>${(data) => html`<${Task} task=${data} id=${id} reload=${found.reload} />`}</${Loaded}>
  </${Page}>`;
}
