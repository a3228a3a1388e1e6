// Schedules: tasks that are submitted at the times of a cron line.
import { html } from "../core/dom.js";
import { del, get, may, part, post } from "../core/api.js";
import { useData } from "../core/live.js";
import { go, Link } from "../core/router.js";
import { NONE } from "../core/format.js";
import { Card, Page } from "../parts/page.js";
import { Badge } from "../parts/badge.js";
import { Table } from "../parts/table.js";
import { Ago } from "../parts/time.js";
import { Empty, Loaded } from "../parts/state.js";
import { Field, Select } from "../parts/form.js";
import { Command } from "../parts/copy.js";
import { act, toast } from "../parts/toast.js";
import { confirm } from "../parts/dialog.js";
import { openForm, RowActions } from "../parts/tile.js";

const wrong = (field, message) => Object.assign(new Error(message), { details: { field } });

function read(text, field) {
  try {
    return JSON.parse(text || "{}");
  } catch (error) {
    throw wrong(field, `The input is not JSON: ${error.message}`);
  }
}

const openCreate = (types) =>
  openForm({
    title: "Create a schedule",
    action: "Create",
    send: (told) =>
      post("/schedules", {
        ...(told.name ? { name: told.name } : {}),
        cron: told.cron, timezone: told.timezone ?? "UTC", missed: told.missed, overlap: told.overlap,
        task: { task_type: told.task_type, parameters: read(told.parameters, "parameters"), ...(told.model_name ? { model_name: told.model_name } : {}), ...(told.retries ? { retries: told.retries } : {}) },
      }),
    Fields: () => html`
      <div class="two">
        <${Field} name="name" label="Name" placeholder="nightly" hint="made up when empty" />
        <${Field} name="cron" label="When" required placeholder="0 3 * * *" hint="minute, hour, day, month, weekday; or @hourly, @daily" />
        <${Field} name="timezone" label="Time zone" value=${Intl.DateTimeFormat().resolvedOptions().timeZone ?? "UTC"} />
        <${Select} name="task_type" label="Job type" options=${types} />
        <${Field} name="model_name" label="Model" />
        <${Field} name="retries" label="Retries" type="number" min="0" max="1000" />
      </div>
      <${Field} name="parameters" label="Input" multiline rows="4" value="{}" hint="JSON" />
      <div class="two">
        <${Select} name="missed" label="Runs missed while no manager was up" options=${[["once", "make up for them by one"], ["skip", "leave them out"], ["all", "make up for each"]]} value="once" />
        <${Select} name="overlap" label="While the run before still lives" options=${[["allow", "run beside it"], ["skip", "leave this one out"]]} value="allow" />
      </div>`,
  });

async function run(row) {
  try {
    const made = await post(`/schedules/${part(row.name)}/run`);
    toast("It runs now, beside the plan");
    go(`/tasks/${part(made.task_id)}`);
  } catch (error) {
    toast(error.message, "bad");
  }
}

// [[word, act, look]] of one schedule; `gone` is called when it was deleted.
export function actionsOf(row, reload, gone = reload) {
  const path = `/schedules/${part(row.name)}`;
  const remove = async () =>
    (await confirm({ title: `Delete the schedule ${row.name}?`, text: "Tasks it has submitted stay.", action: "Delete", isGrave: true })) && (await act(del(path), `${row.name} is gone`)) && gone();
  const turn = (verb, done) => async () => (await act(post(`${path}/${verb}`), `${row.name} ${done}`)) && reload();
  return [
    ["Run now", () => run(row)],
    row.status === "paused" ? ["Resume", turn("resume", "goes on")] : ["Pause", turn("pause", "is paused")],
    ["Delete", remove, "grave"],
  ];
}

export const ScheduleState = ({ row }) => html`<${Badge} state=${row.status} look=${row.status === "paused" ? "warn" : "good"} />`;

const columnsOf = (rows, reload) => {
  return [
    { name: "name", title: "Name", isMain: true, under: (row) => row.explained, cell: (row) => html`<${Link} to=${`/schedules/${part(row.name)}`} tabindex="-1">${row.name}</${Link}>`, sort: (row) => row.name },
    { name: "state", title: "State", isExtra: true, cell: (row) => html`<${ScheduleState} row=${row} />`, sort: (row) => row.status },
    { name: "next", title: "Next", cell: (row) => (row.status === "paused" ? "paused" : html`<${Ago} at=${row.next_at} />`), sort: (row) => (row.status === "paused" ? null : Date.parse(row.next_at ?? 0)) },
    { name: "when", title: "When", isExtra: true, cell: (row) => html`<span class="clip" title=${`${row.explained}: ${row.cron} (${row.timezone})`}>${row.explained}</span>` },
    { name: "task", title: "Task", isExtra: true, cell: (row) => row.task.task_type, sort: (row) => row.task.task_type },
    { name: "last", title: "Last", isExtra: true, cell: (row) => (row.last_task_id ? html`<${Link} to=${`/tasks/${part(row.last_task_id)}`}>${row.last_at ? html`<${Ago} at=${row.last_at} />` : "by hand"}</${Link}>` : NONE) },
    rows.some((row) => row.note) && { name: "note", title: "Note", isExtra: true, cell: (row) => html`<span class="clip" title=${row.note}>${row.note ?? ""}</span>` },
    may("operate") && { name: "act", title: html`<span class="hidden-text">Actions</span>`, isNumber: true, cell: (row) => html`<${RowActions} of=${row.name} actions=${actionsOf(row, reload)} />` },
  ].filter(Boolean);
};

export default function Schedules() {
  const schedules = useData("/schedules", { events: ["schedule_changed"], every: 30 });
  const create = async () => {
    const { job_types: types } = await get("/job-types");
    if (await openCreate(types.map((one) => one.name))) schedules.reload();
  };
  return html`<${Page} title="Schedules" actions=${may("operate") && html`<button class="main" onClick=${() => act(create())}>Create a schedule</button>`}>
    <${Card} title="Tasks that come again">
      <${Loaded} from=${schedules}>${(data) => html`<${Table} label="Schedules" rows=${data.schedules} id=${(row) => row.name} columns=${columnsOf(data.schedules, schedules.reload)} sort="next" to=${(row) => `/schedules/${part(row.name)}`}
        empty=${html`<${Empty} title="No schedules yet" hint="Submit a task at the times of a cron line:"><${Command}>${`corral schedule add "0 3 * * *" echo '{"message": "good morning"}' --name nightly`}</${Command}></${Empty}>`} />`}</${Loaded}>
    </${Card}>
  </${Page}>`;
}
