// What happened, newest first.
import { html } from "../core/dom.js";
import { part } from "../core/api.js";
import { words } from "../core/format.js";
import { Link } from "../core/router.js";
import { Badge } from "./badge.js";
import { Empty } from "./state.js";
import { Table } from "./table.js";
import { Ago } from "./time.js";

const COLUMNS = [
  { name: "at", title: "When", cell: (row) => html`<${Ago} at=${row.at} />`, sort: (row) => row.seq },
  { name: "severity", title: "Severity", cell: (row) => html`<${Badge} state=${row.severity} />`, sort: (row) => ["info", "warning", "error", "critical"].indexOf(row.severity) },
  { name: "type", title: "Event", cell: (row) => words(row.event_type), sort: (row) => row.event_type, isExtra: true },
  { name: "title", title: "What", isWide: true, cell: (row) => html`<span title=${row.description}>${row.title}</span>` },
  { name: "node", title: "Node", cell: (row) => row.source_node_id && html`<${Link} to="/nodes/${part(row.source_node_id)}" class="mono">${row.source_node_id}</${Link}>`, isExtra: true },
  {
    name: "task",
    title: "Tasks",
    isExtra: true,
    cell: (row) =>
      row.task_ids.length === 1
        ? html`<${Link} to="/tasks/${part(row.task_ids[0])}">task</${Link}>`
        : row.task_ids.length || "",
  },
];

export const EventTable = ({ events, label = "Events" }) => html`
  <${Table} label=${label} rows=${events} id=${(row) => row.seq} columns=${COLUMNS} sort="-at" empty=${html`<${Empty} title="Nothing happened" />`} />
`;
