// Workers, on their own page and on that of their node.
import { html } from "../core/dom.js";
import { part } from "../core/api.js";
import { count, duration, megabytes, percent } from "../core/format.js";
import { Badge, Chip } from "./badge.js";
import { Table } from "./table.js";
import { Link } from "../core/router.js";

export const workerColumns = (hosts) => [
  { name: "name", title: "Name", cell: (row) => html`<b>${row.name}</b>`, isMain: true, under: (row) => [hosts?.get(row.node_id), ...row.job_types, ...row.loaded_models].filter(Boolean).join(" · "), sort: (row) => row.name },
  { name: "state", title: "State", cell: (row) => html`<${Badge} state=${row.state} title=${row.error} />`, sort: (row) => row.state },
  ...(hosts ? [{ name: "node", title: "Node", cell: (row) => html`<${Link} to="/nodes/${part(row.node_id)}">${hosts.get(row.node_id) ?? row.node_id}</${Link}>`, sort: (row) => hosts.get(row.node_id) ?? row.node_id, isExtra: true }] : []),
  { name: "types", title: "Job types", cell: (row) => row.job_types.map((type) => html`<${Chip} key=${type}>${type}</${Chip}> `), isExtra: true },
  { name: "models", title: "Models", cell: (row) => row.loaded_models.map((name) => html`<${Chip} key=${name}>${name}</${Chip}> `), isExtra: true },
  { name: "tasks", title: "Tasks", isNumber: true, cell: (row) => `${row.current_tasks} / ${row.concurrency}`, sort: (row) => row.current_tasks },
  { name: "done", title: "Done", isNumber: true, cell: (row) => count(row.performance_metrics.tasks_completed), sort: (row) => row.performance_metrics.tasks_completed, isExtra: true },
  { name: "errors", title: "Errors", isNumber: true, cell: (row) => percent(100 * row.performance_metrics.error_rate), sort: (row) => row.performance_metrics.error_rate, isExtra: true },
  { name: "mean", title: "Mean time", isNumber: true, cell: (row) => (row.performance_metrics.tasks_completed ? duration(row.performance_metrics.average_duration_s) : "–"), sort: (row) => row.performance_metrics.average_duration_s, isExtra: true },
  { name: "memory", title: "Memory", isNumber: true, cell: (row) => megabytes(row.memory_usage.rss_mb), sort: (row) => row.memory_usage.rss_mb, isExtra: true },
  { name: "restarts", title: "Restarts", isNumber: true, cell: (row) => row.restarts, sort: (row) => row.restarts, isExtra: true, isRoomy: true },
];

export const WorkerTable = ({ workers, hosts, empty }) => html`
  <${Table} label="Workers" rows=${workers} id=${(row) => row.worker_id} columns=${workerColumns(hosts)} sort="name"
    to=${(row) => `/workers/${part(row.worker_id)}`} empty=${empty} />
`;
