// One schedule: when it comes next, what its last runs came to, what it submits.
import { html } from "../core/dom.js";
import { may, part } from "../core/api.js";
import { useData } from "../core/live.js";
import { brief, duration, moment } from "../core/format.js";
import { go, Link } from "../core/router.js";
import { Badge, Labels } from "../parts/badge.js";
import { Copy, Json, pretty } from "../parts/copy.js";
import { Card, Facts, Page } from "../parts/page.js";
import { Empty, Loaded } from "../parts/state.js";
import { Table } from "../parts/table.js";
import { Ago } from "../parts/time.js";
import { actionsOf, ScheduleState } from "./schedules.js";

const LAST = 20;
const MISSED = { once: "made up for by one", skip: "left out", all: "each made up for" };
const OVERLAP = { allow: "runs beside it", skip: "is left out" };

const planned = (at) => (Number.isNaN(Date.parse(at)) ? "run by hand" : moment(at));

const RUNS = [
  { name: "status", title: "State", cell: (row) => html`<${Badge} state=${row.status} />` },
  { name: "planned", title: "Planned for", isMain: true, cell: (row) => planned(row.scheduled_at), under: (row) => row.task_id },
  { name: "task", title: "Task", isExtra: true, cell: (row) => html`<${Link} to=${`/tasks/${part(row.task_id)}`} class="mono" tabindex="-1">${brief(row.task_id, 18)}</${Link}>` },
  { name: "submitted", title: "Submitted", isExtra: true, cell: (row) => html`<${Ago} at=${row.created_at} />` },
  { name: "took", title: "Took", isNumber: true, cell: (row) => duration(row.duration) },
];

const Next = ({ row }) =>
  row.upcoming.length
    ? html`<ol class="times">${row.upcoming.map((at) => html`<li key=${at}><span>${moment(at)}</span> <span class="hint"><${Ago} at=${at} /></span></li>`)}</ol>`
    : html`<p class="hint">${row.status === "paused" ? "It is paused: it runs at no time until it is resumed." : "No time is left."}</p>`;

const About = ({ row }) => html`<${Facts} rows=${[
  ["When", row.explained],
  ["Cron", html`<span class="mono">${row.cron}</span>`],
  ["Time zone", row.timezone],
  ["Job type", row.task.task_type],
  ["Model", row.task.model_name],
  ["Retries", row.task.retries || null],
  ["Missed runs are", MISSED[row.missed] ?? row.missed],
  ["While one lives, the next", OVERLAP[row.overlap] ?? row.overlap],
  ["Labels", Object.keys(row.task.labels).length ? html`<${Labels} labels=${row.task.labels} />` : null],
  ["Made", row.created_at && html`<${Ago} at=${row.created_at} />`],
  ["Note", row.note],
]} />`;

export default function SchedulePage({ params: { id } }) {
  const schedule = useData(`/schedules/${part(id)}`, { events: ["tasks_changed"], every: 15, pause: 2 });
  const runs = useData("/tasks", { query: { schedule: id, limit: LAST, results: false }, events: ["tasks_changed"] });
  const found = schedule.data;
  const reload = () => (schedule.reload(), runs.reload());
  const actions = found && may("operate") && actionsOf(found, reload, () => go("/schedules")).map(([word, act, look = ""]) => html`<button key=${word} class=${look} onClick=${act}>${word}</button>`);
  const all = html`<${Link} to=${`/tasks?schedule=${part(id)}`}>all of them</${Link}>`;
  return html`<${Page} title=${id} back=${["/schedules", "Schedules"]} lead=${found && html`<${ScheduleState} row=${found} />`} actions=${actions}>
    <${Loaded} from=${schedule}>${(row) => html`<div class="stack">
      <div class="pair">
        <${Card} title="Next times"><${Next} row=${row} /></${Card}>
        <${Card} title="About"><${About} row=${row} /></${Card}>
      </div>
      <${Card} title="Last runs" aside=${runs.data?.total > LAST && all}><${Loaded} from=${runs}>${(data) => html`<${Table} label="Last runs" rows=${data.tasks} id=${(task) => task.task_id} columns=${RUNS}
        to=${(task) => `/tasks/${part(task.task_id)}`} empty=${html`<${Empty} title="It has not run yet" />`} />`}</${Loaded}></${Card}>
      <${Card} title="Input" aside=${html`<${Copy} text=${pretty(row.task.parameters) ?? ""} />`}><${Json} value=${row.task.parameters} label="Input" /></${Card}>
    </div>`}</${Loaded}>
  </${Page}>`;
}
