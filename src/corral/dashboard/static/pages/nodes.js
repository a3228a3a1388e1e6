// Every machine: is it there, how full is it, what has it.
import { html } from "../core/dom.js";
import { part } from "../core/api.js";
import { useData } from "../core/live.js";
import { Badge, Chip, Labels } from "../parts/badge.js";
import { Bar } from "../parts/bar.js";
import { Card, Page } from "../parts/page.js";
import { Empty, Loaded } from "../parts/state.js";
import { Table } from "../parts/table.js";
import { Ago } from "../parts/time.js";

const share = (value) => (value === null ? null : value / 100);

export const nodeState = (node) => (node.status === "online" && node.scheduling !== "open" ? node.scheduling : node.status);

export const gpuWords = (gpus) => {
  const kinds = new Map();
  for (const gpu of gpus) kinds.set(gpu.name, (kinds.get(gpu.name) ?? 0) + 1);
  return [...kinds].map(([name, n]) => (n > 1 ? `${n} × ${name}` : name)).join(", ");
};

const gpuShort = (gpus) => {
  const kinds = new Set(gpus.map((gpu) => gpu.name));
  return kinds.size === 1 ? gpuWords(gpus) : `${gpus.length} of ${kinds.size} kinds`;
};

const COLUMNS = [
  { name: "hostname", title: "Name", cell: (row) => html`<b>${row.hostname}</b>${row.node_type === "master" ? html` <${Chip}>manager</${Chip}>` : ""}`, under: (row) => (row.gpus.length ? gpuWords(row.gpus) : "no GPU"), isMain: true, sort: (row) => row.hostname },
  { name: "status", title: "State", cell: (row) => html`<${Badge} state=${nodeState(row)} title=${row.holds.map((hold) => hold.reason).join(", ")} />`, sort: nodeState },
  { name: "gpus", title: "GPUs", cell: (row) => (row.gpus.length ? html`<span title=${gpuWords(row.gpus)}>${gpuShort(row.gpus)}</span>` : html`<span class="hint">none</span>`), sort: (row) => row.gpus.length, isExtra: true, isElastic: true },
  { name: "cpu", title: "CPU", cell: (row) => html`<${Bar} share=${share(row.cpu_percent)} label="CPU" plain />`, sort: (row) => row.cpu_percent },
  { name: "memory", title: "Memory", cell: (row) => html`<${Bar} share=${share(row.memory_percent)} label="Memory" />`, sort: (row) => row.memory_percent, isExtra: true },
  { name: "disk", title: "Disk", cell: (row) => html`<${Bar} share=${share(row.disk_percent)} label="Disk" />`, sort: (row) => row.disk_percent, isExtra: true },
  { name: "workers", title: "Workers", isNumber: true, cell: (row) => row.workers, sort: (row) => row.workers, isExtra: true },
  { name: "tasks", title: "Tasks", isNumber: true, cell: (row) => row.running_tasks, sort: (row) => row.running_tasks, isExtra: true },
  { name: "labels", title: "Labels", cell: (row) => html`<${Labels} labels=${row.labels} />`, isExtra: true, isRoomy: true },
  { name: "heard", title: "Heard", cell: (row) => html`<${Ago} at=${row.last_heartbeat} />`, sort: (row) => row.last_heartbeat, isExtra: true },
];

export default function Nodes() {
  const nodes = useData("/nodes", { events: ["node_status_changed"], later: ["worker_status_changed"], every: 10 });
  return html`<${Page} title="Nodes" lead="Machines that run work.">
    <${Card}>
      <${Loaded} from=${nodes}>${(data) => html`<${Table} label="Nodes" rows=${data.nodes} id=${(row) => row.node_id} columns=${COLUMNS} sort="hostname"
        to=${(row) => `/nodes/${part(row.node_id)}`}
        empty=${html`<${Empty} title="No machine has joined" hint="Make a token here, then use it there:" command=${"corral token create\ncorral join URL --token TOKEN"} />`} />`}</${Loaded}>
    </${Card}>
  </${Page}>`;
}
