// Tasks in short, for pages of other things.
import { html } from "../core/dom.js";
import { part } from "../core/api.js";
import { brief, duration } from "../core/format.js";
import { Link } from "../core/router.js";
import { Badge, Labels } from "./badge.js";
import { Table } from "./table.js";
import { Ago, Since } from "./time.js";

const COLUMNS = [
  { name: "id", title: "Task", cell: (row) => html`<${Link} to="/tasks/${part(row.task_id)}" class="mono">${brief(row.task_id, 13)}</${Link}>`, isExtra: true },
  { name: "type", title: "Type", isMain: true, cell: (row) => row.task_type, under: (row) => Object.entries(row.labels).map(([key, value]) => `${key}=${value}`).join(" · ") || row.task_id, sort: (row) => row.task_type },
  { name: "status", title: "State", cell: (row) => html`<${Badge} state=${row.status} />` },
  { name: "labels", title: "Labels", isExtra: true, cell: (row) => html`<${Labels} labels=${row.labels} />` },
  { name: "began", title: "Began", isExtra: true, cell: (row) => html`<${Ago} at=${row.started_at} />` },
  {
    name: "took",
    title: "Time",
    isNumber: true,
    cell: (row) => (row.duration !== null ? duration(row.duration) : html`<${Since} at=${row.started_at} end=${row.completed_at} />`),
  },
];

export const TaskTable = ({ tasks, label = "Tasks", empty }) => html`
  <${Table} label=${label} rows=${tasks} id=${(row) => row.task_id} columns=${COLUMNS} to=${(row) => `/tasks/${part(row.task_id)}`} empty=${empty} />
`;
