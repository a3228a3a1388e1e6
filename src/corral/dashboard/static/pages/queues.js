// Queues: what waits and runs of each job type, and the shares that are set.
import { html, useEffect, useState } from "../core/dom.js";
import { del, get, may, part, patch, post, put } from "../core/api.js";
import { listen, useData } from "../core/live.js";
import { each } from "../core/bulk.js";
import { Link } from "../core/router.js";
import { bytes, count, duration, NONE, percent } from "../core/format.js";
import { Card, Page } from "../parts/page.js";
import { Badge } from "../parts/badge.js";
import { Table } from "../parts/table.js";
import { Since } from "../parts/time.js";
import { Empty, Loaded } from "../parts/state.js";
import { Field } from "../parts/form.js";
import { Command } from "../parts/copy.js";
import { act } from "../parts/toast.js";
import { confirm } from "../parts/dialog.js";
import { openForm, RowActions } from "../parts/tile.js";

const OLDEST = 12;

// {type: oldest}: since when tasks wait, asked for as little as will do.
function useOldest(types, turn) {
  const [found, setFound] = useState({});
  useEffect(() => {
    let isOver = false;
    const look = async () => {
      const told = {};
      const waiting = types.filter((one) => one.waiting > 0).sort((a, b) => b.waiting - a.waiting).slice(0, OLDEST);
      await each(waiting, async ({ name, waiting: all }) => {
        const last = (await get("/tasks", { status: "queued", task_type: name, limit: 1, offset: all - 1, results: false })).tasks[0];
        told[name] = last?.created_at ?? null;
      });
      if (!isOver) setFound(told);
    };
    if (types.length) look().catch(() => {});
    return () => (isOver = true);
  }, [turn]);
  return found;
}

const change = (row, reload) =>
  openForm({
    title: `Change ${row.name}`,
    action: "Save",
    send: async ({ batch_limit: batch, cache_ttl_s: ttl }) => {
      await patch(`/job-types/${part(row.name)}`, { batch_limit: batch ?? null, cache_ttl_s: ttl || null });
      reload();
    },
    Fields: () => html`
      <${Field} name="batch_limit" label="Batch limit" type="number" min="1" value=${row.batch_limit ?? ""} hint="tasks that go to one worker together; empty: as the worker's class says" />
      <${Field} name="cache_ttl_s" label="Keep results for, seconds" type="number" min="0" step="any" value=${row.cache_ttl_s ?? ""} hint="the same input is answered from what is kept; empty: never" />`,
  });

const columnsOf = (oldest, reload) => {
  const doIt = async (promise, done) => (await act(promise, done)) && reload();
  const clear = async (row) =>
    (await confirm({ title: `Cancel all that waits of ${row.name}?`, text: `${count(row.waiting)} tasks are cancelled. What runs goes on.`, action: "Cancel them", isGrave: true })) &&
    doIt(del(`/job-types/${part(row.name)}/queue`), `The queue of ${row.name} is empty`);
  return [
    { name: "name", title: "Job type", cell: (row) => html`<${Link} to=${`/tasks?type=${part(row.name)}`}>${row.name}</${Link}>${row.paused && html` <span class="only-phone">paused</span>`}`, sort: (row) => row.name },
    { name: "state", title: "State", isExtra: true, cell: (row) => html`<${Badge} state=${row.paused ? "paused" : "open"} look=${row.paused ? "warn" : "good"} />`, sort: (row) => row.paused },
    { name: "waiting", title: "Waiting", isNumber: true, cell: (row) => count(row.waiting), sort: (row) => row.waiting },
    { name: "running", title: "Running", isNumber: true, cell: (row) => count(row.running), sort: (row) => row.running },
    { name: "oldest", title: "Longest wait", isNumber: true, isExtra: true, cell: (row) => (oldest[row.name] ? html`<${Since} at=${oldest[row.name]} />` : NONE) },
    { name: "batch", title: "Batch", isNumber: true, isExtra: true, cell: (row) => row.batch_limit ?? NONE },
    { name: "cache", title: "Results kept", isExtra: true, cell: (row) => (row.cache_ttl_s ? html`${duration(row.cache_ttl_s)}${row.cache && html` <span class="hint" title="${row.cache.hits} hits, ${row.cache.misses} misses, ${bytes(row.cache.bytes)}">${row.cache.hit_rate === null ? "not asked yet" : `${percent(row.cache.hit_rate * 100)} hits`}</span>`}` : NONE) },
    { name: "order", title: "Order", isExtra: true, cell: (row) => row.queue_order },
    may("operate") && { name: "act", title: html`<span class="hidden-text">Actions</span>`, isNumber: true, cell: (row) => html`<${RowActions} of=${row.name} actions=${[
      row.waiting > 0 && ["Clear", () => clear(row), "grave"],
      ["Change", () => change(row, reload)],
      row.paused ? ["Resume", () => doIt(post(`/job-types/${part(row.name)}/resume`), `${row.name} goes on`)] : ["Pause", () => doIt(post(`/job-types/${part(row.name)}/pause`), `${row.name} is paused`)],
    ]} />` },
  ].filter(Boolean);
};

const openShare = (row) =>
  openForm({
    title: row ? `Change the share of ${row.name}` : "Set a share",
    action: "Save",
    send: (told) => put("/shares", { name: row?.name ?? told.name, weight: told.weight ?? null, max_running: told.max_running ?? null, gpu_seconds_per_day: told.gpu_seconds_per_day ?? null }),
    Fields: () => html`
      ${!row && html`<${Field} name="name" label="Whose" required placeholder="owner=ann" hint="an owner or a label of tasks: key=value" />`}
      <${Field} name="weight" label="Weight" type="number" min="0" step="any" value=${row?.weight ?? ""} hint="twice the weight, twice the share when both wait" />
      <${Field} name="max_running" label="Running at most" type="number" min="0" value=${row?.max_running ?? ""} />
      <${Field} name="gpu_seconds_per_day" label="GPU seconds a day" type="number" min="0" value=${row?.gpu_seconds_per_day ?? ""} />`,
  });

function Shares() {
  const shares = useData("/shares", { every: 10 });
  const remove = async (row) =>
    (await confirm({ title: `Remove the share of ${row.name}?`, text: "Its tasks are then served like all others.", action: "Remove", isGrave: true })) &&
    (await act(del(`/shares/${part(row.name)}`), "The share is removed")) && shares.reload();
  const columns = [
    { name: "name", title: "Whose", cell: (row) => row.name, sort: (row) => row.name },
    { name: "weight", title: "Weight", isNumber: true, cell: (row) => row.weight ?? NONE, sort: (row) => row.weight },
    { name: "running", title: "Running", isNumber: true, cell: (row) => (row.max_running === null ? count(row.running) : `${count(row.running)} of ${count(row.max_running)}`), sort: (row) => row.running },
    { name: "waiting", title: "Waiting", isNumber: true, isExtra: true, cell: (row) => count(row.waiting), sort: (row) => row.waiting },
    { name: "gpu", title: "GPU today", isNumber: true, isExtra: true, cell: (row) => `${duration(row.gpu_seconds_today)}${row.gpu_seconds_per_day === null ? "" : ` of ${duration(row.gpu_seconds_per_day)}`}` },
    may("admin") && { name: "act", title: html`<span class="hidden-text">Actions</span>`, isNumber: true, cell: (row) => html`<${RowActions} of=${row.name} actions=${[["Change", async () => (await openShare(row)) && shares.reload()], ["Remove", () => remove(row), "grave"]]} />` },
  ].filter(Boolean);
  return html`<${Card} title="Shares" aside=${may("admin") && html`<button class="small" onClick=${async () => (await openShare()) && shares.reload()}>Set a share</button>`}>
    <${Loaded} from=${shares}>${(data) => html`<${Table} label="Shares" rows=${data.shares} id=${(row) => row.name} columns=${columns} sort="name"
      empty=${html`<${Empty} title="Everybody has the same share" hint="Give an owner or a label more, or a limit:"><${Command}>corral share set team=vision --weight 2 --max-running 10</${Command}></${Empty}>`} />`}</${Loaded}></${Card}>`;
}

export default function Queues() {
  const types = useData("/job-types", { events: ["job_type_changed", "tasks_changed"], every: 30 });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let timer = 0;
    const end = listen("tasks_changed", () => (timer ||= setTimeout(() => ((timer = 0), !document.hidden && setTurn((old) => old + 1)), 5000)));
    return () => (end(), clearTimeout(timer));
  }, []);
  const rows = types.data?.job_types ?? [];
  const oldest = useOldest(rows, `${turn} ${rows.map((row) => row.name).join()}`);
  return html`<${Page} title="Queues" lead="Each job type is a queue; who goes first is decided between all of them.">
    <div class="stack">
      <${Card} title="Job types">
        <${Loaded} from=${types}>${({ job_types: all }) => html`<${Table} label="Job types" rows=${all} id=${(row) => row.name} columns=${columnsOf(oldest, types.reload)} sort="name"
          empty=${html`<${Empty} title="No job types yet" hint="They come with the workers that serve them:"><${Command}>corral worker launch corral.EchoWorker --job-type echo</${Command}></${Empty}>`} />`}</${Loaded}>
      </${Card}>
      <${Shares} />
    </div>
  </${Page}>`;
}
