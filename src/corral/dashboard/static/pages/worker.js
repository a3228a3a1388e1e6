// One worker: its state, what it has loaded, what it runs and ran; started anew.
import { html } from "../core/dom.js";
import { may, part, post } from "../core/api.js";
import { count, duration, megabytes, percent } from "../core/format.js";
import { useData } from "../core/live.js";
import { Badge, Chip } from "../parts/badge.js";
import { confirm } from "../parts/dialog.js";
import { Host } from "../parts/host.js";
import { Card, Facts, Figure, Page } from "../parts/page.js";
import { TaskTable } from "../parts/running.js";
import { Empty, Loaded } from "../parts/state.js";
import { Table } from "../parts/table.js";
import { Ago } from "../parts/time.js";
import { act } from "../parts/toast.js";

const MODELS = [
  { name: "name", title: "Model", cell: (row) => html`<b>${row.name}</b>`, sort: (row) => row.name },
  { name: "size", title: "Memory", isNumber: true, cell: (row) => megabytes(row.memory_usage), sort: (row) => row.memory_usage },
  { name: "load", title: "Took to load", isNumber: true, cell: (row) => duration(row.load_time), sort: (row) => row.load_time },
  { name: "used", title: "Last used", cell: (row) => html`<${Ago} at=${row.last_used} />`, sort: (row) => row.last_used },
];

async function restart(worker, reload) {
  const isSure = await confirm({ title: `Restart ${worker.name}?`, text: "It starts anew under its id, once it has finished what it runs. Models it has loaded are loaded again.", action: "Restart" });
  if (isSure && (await act(post(`/workers/${part(worker.worker_id)}/restart`), `${worker.name} starts anew`))) reload();
}

const About = ({ worker }) => html`<${Card} title="About" wide><${Facts} rows=${[
  ["Id", html`<span class="mono">${worker.worker_id}</span>`],
  ["Node", html`<${Host} id=${worker.node_id} />`],
  ["Class", html`<span class="mono">${worker.worker_class}</span>`],
  ["Worker type", worker.worker_type],
  ["Job types", worker.job_types.map((type) => html`<${Chip} key=${type}>${type}</${Chip}> `)],
  ["Isolation", worker.isolation],
  ["GPUs", worker.gpu_info.map((gpu) => gpu.name).join(", ") || "none of its own"],
  ["Process", worker.pid],
  ["Restarts", count(worker.restarts)],
  ["Memory", megabytes(worker.memory_usage.rss_mb)],
  ["Last heard", html`<${Ago} at=${worker.last_heartbeat} />`],
]} /></${Card}>`;

export default function WorkerPage({ params }) {
  const mine = (event) => event.data.worker_id === params.id || event.event === "tasks_changed";
  const worker = useData(`/workers/${part(params.id)}`, { events: ["worker_status_changed", "model_loaded", "model_unloaded", "tasks_changed"], matches: mine, every: 10 });
  const tasks = useData("/tasks", { query: { worker_id: params.id, limit: 30 }, events: ["tasks_changed"] });
  const found = worker.data;
  return html`<${Page} title=${found?.name ?? "Worker"} back=${["/workers", "Workers"]} lead=${found && html`<${Badge} state=${found.state} />`}
    actions=${found && may("operate") && html`<button onClick=${() => restart(found, worker.reload)}>Restart</button>`}>
    <${Loaded} from=${worker}>${(row) => html`
      ${row.error && html`<p class="fault" role="alert">${row.error}</p>`}
      <div class="figures">
        <${Figure} name="Tasks now" value="${row.current_tasks} / ${row.concurrency}" note="at once" />
        <${Figure} name="Completed" value=${count(row.task_history.completed)} note="${count(row.task_history.completed_today)} today" />
        <${Figure} name="Failed" value=${count(row.task_history.failed)} note="${percent(100 * row.metrics.error_rate)} of all" look=${row.metrics.error_rate > 0.2 ? "warn" : ""} />
        <${Figure} name="Mean time" value=${row.task_history.completed ? duration(row.task_history.average_duration) : "–"} note="a task" />
        <${Figure} name="Rate" value=${count(Math.round(row.metrics.tasks_per_hour))} note="tasks an hour" />
      </div>
      <div class="cards">
        <${About} worker=${row} />
        <${Card} title="Models in memory" wide>${row.loaded_models.length
          ? html`<${Table} label="Models in memory" rows=${row.loaded_models} id=${(one) => one.name} columns=${MODELS} />`
          : html`<${Empty} title="No model is loaded" hint="One is loaded with the first task that asks for it." />`}</${Card}>
        <${Card} title="Tasks" wide><${Loaded} from=${tasks}>${(data) => html`<${TaskTable} label="Tasks of this worker" tasks=${data.tasks}
          empty=${html`<${Empty} title="It has run nothing yet" />`} />`}</${Loaded}></${Card}>
      </div>`}</${Loaded}>
  </${Page}>`;
}
