// The cluster at one look: is it well, what waits and runs, how it went.
import { html, useMemo } from "../core/dom.js";
import { count, duration, megabytes, percent, short, span } from "../core/format.js";
import { summary, useData } from "../core/live.js";
import { Badge } from "../parts/badge.js";
import { Heat } from "../parts/heat.js";
import { Card, Figure, Page } from "../parts/page.js";
import { epochs, Plot } from "../parts/plot.js";
import { Range, rangeOf, REDRAW } from "../parts/range.js";
import { Reasons } from "../parts/reasons.js";
import { Empty, Loaded } from "../parts/state.js";
import { TaskTable } from "../parts/running.js";

// What waits and runs comes with every `cluster_summary`; the rest may take its time.
const ALERTS = ["alert", "alert_acknowledged", "alert_resolved", "gpu_alert", "node_status_changed"];
const LOOKS = { healthy: "good", degraded: "warn", critical: "bad", unhealthy: "bad" };

function Figures({ status }) {
  const now = summary.value ?? {};
  const memory = status.gpu_memory_total_mb;
  return html`<div class="figures">
    <${Figure} name="Health" value=${status.health} look=${LOOKS[status.health] ?? "warn"} note="up ${duration(status.uptime_s)}" to="/events" />
    <${Figure} name="Nodes" value="${status.online_nodes} / ${status.total_nodes}" note="online" to="/nodes" look=${status.online_nodes < status.total_nodes ? "warn" : ""} />
    <${Figure} name="Workers" value="${status.active_workers} / ${status.total_workers}" note="serving" to="/workers" look=${status.active_workers < status.total_workers ? "warn" : ""} />
    <${Figure} name="Waiting" value=${short(now.queued_tasks ?? status.queued_tasks)} note="tasks in the queue" to="/tasks?status=queued" />
    <${Figure} name="Running" value=${short(now.running_tasks ?? status.running_tasks)} note="with workers now" to="/tasks?status=running" />
    <${Figure} name="GPU use" value=${memory ? percent(status.gpu_utilization) : "–"} note=${memory ? `${megabytes(memory)} of memory` : "no GPU here"} />
  </div>`;
}

const NO_GPU = html`<${Empty} title="No GPU in this cluster" hint="Join a machine that has one, or try it out with made-up cards:" command="CORRAL_SIMULATED_GPUS=2x24GB corral up" />`;

const LATE_S = 75;

function History({ told, now }) {
  const { tasks, series } = told;
  const times = useMemo(() => epochs(told.times), [told]);
  const steps = useMemo(() => epochs(tasks.times), [told]);
  // Tasks are counted a minute late: the last step is as long as what is counted of it.
  const counted = Date.parse(told.to) / 1000 - LATE_S;
  const perMinute = (values) => values.map((value, i) => {
    const length = Math.min(tasks.step_s, counted - steps[i]);
    return length < 60 && !value ? null : (value * 60) / Math.max(length, 60);
  });
  const rate = (value) => `${short(value)}/min`;
  const through = useMemo(() => [
    { label: "completed", values: perMinute(tasks.completed), colour: "c3" },
    { label: "failed", values: perMinute(tasks.failed), colour: "c2" },
  ], [told]);
  const errors = useMemo(() => [
    {
      label: "failed of all that ended",
      colour: "c2",
      values: tasks.completed.map((good, i) => (good + tasks.failed[i] ? (100 * tasks.failed[i]) / (good + tasks.failed[i]) : null)),
    },
  ], [told]);
  // The last step is not over: what waits now stands in for its most.
  const queued = summary.value?.queued_tasks ?? now ?? null;
  const waiting = useMemo(() => {
    const last = Math.max(tasks.waiting.at(-1) ?? 0, queued ?? 0);
    return [{ label: "waiting", values: [...tasks.waiting.slice(0, -1), queued === null ? tasks.waiting.at(-1) : last], colour: "c4" }];
  }, [told, queued]);
  const latency = useMemo(() => [{ label: "mean, from submit to end", values: tasks.response_s, colour: "c1" }], [told]);
  const use = useMemo(() => [
    { label: "GPU", values: series.gpu_utilization_percent.average, colour: "c1" },
    { label: "CPU", values: series.cpu_percent.average, colour: "c6" },
  ], [told]);
  const memory = useMemo(() => [
    { label: "GPU memory", values: series.gpu_memory_used_mb.average, colour: "c1" },
    { label: "memory", values: series.memory_used_mb.average, colour: "c6" },
  ], [told]);
  const m = told.metrics;
  return html`
    <${Card} title="Queue"><${Plot} title="Tasks that wait" times=${steps} series=${waiting} format=${short} isArea height=${140} /></${Card}>
    <${Card} title="Throughput" aside="${count(m.total_tasks)} ended"><${Plot} title="Tasks a minute" times=${steps} series=${through} format=${rate} height=${140} /></${Card}>
    <${Card} title="Latency" aside=${m.average_response_time === null ? "" : `${duration(m.average_response_time)} on average`}><${Plot} title="Time from submit to end" times=${steps} series=${latency} format=${duration} axis=${span} height=${140} /></${Card}>
    <${Card} title="Errors" aside=${m.success_rate === null ? "" : `${percent(100 * m.success_rate, 1)} succeeded`}><${Plot} title="Share of tasks that failed" times=${steps} series=${errors} format=${percent} range=${[0, 100]} isArea height=${140} /></${Card}>
    <${Card} title="Use"><${Plot} title="Use of GPUs and processors" times=${times} series=${use} format=${percent} range=${[0, 100]} height=${140} /></${Card}>
    <${Card} title="Memory"><${Plot} title="Memory in use" times=${times} series=${memory} format=${megabytes} isBinary height=${140} /></${Card}>
  `;
}

export default function Overview({ query }) {
  const range = rangeOf(query);
  const status = useData("/cluster/status", { events: ["node_status_changed"], later: ["worker_status_changed"], every: 15 });
  const health = useData("/cluster/health", { events: ALERTS, every: 15 });
  const nodes = useData("/nodes", { events: ["node_status_changed", "gpu_alert"], every: 10 });
  const running = useData("/tasks", { query: { status: "running", limit: 8 }, events: ["tasks_changed"] });
  const metrics = useData("/cluster/metrics", { query: { timeframe: range }, every: REDRAW[range] });
  const withGpus = (nodes.data?.nodes ?? []).filter((node) => node.gpus.length);
  return html`<${Page} title="Overview" actions=${html`<${Range} value=${range} />`}>
    <${Loaded} from=${status}>${(found) => html`<${Figures} status=${found} />`}</${Loaded}>
    <div class="stack">
    <div class="pair">
      <${Card} title="Needs attention" aside=${health.data && html`<${Badge} state=${health.data.status} look=${LOOKS[health.data.status]} />`}>
        <${Loaded} from=${health}>${(found) => found.reasons.length
          ? html`<${Reasons} reasons=${found.reasons} reload=${health.reload} />`
          : html`<${Empty} title="All is well" hint="${count(found.rules.length)} rules were looked at just now." />`}</${Loaded}>
      </${Card}>
      <${Card} title="GPUs" aside=${withGpus.length ? `${withGpus.reduce((n, node) => n + node.gpus.length, 0)} cards` : ""}>
        <${Loaded} from=${nodes}>${() => (withGpus.length ? html`<${Heat} nodes=${withGpus} />` : NO_GPU)}</${Loaded}>
      </${Card}>
    </div>
      <div class="thirds"><${Loaded} from=${metrics}>${(told) => html`<${History} told=${told} now=${status.data?.queued_tasks} />`}</${Loaded}></div>
      <${Card} title="Running now" aside=${running.data ? `${count(running.data.total)} in all` : ""}>
        <${Loaded} from=${running}>${(found) => html`<${TaskTable} label="Running tasks" tasks=${found.tasks}
          empty=${html`<${Empty} title="Nothing runs now" hint="Submit a task here or at a command line:" command=${"corral run echo '{\"message\": \"hi\"}'"} />`} />`}</${Loaded}>
      </${Card}>
    </div>
  </${Page}>`;
}
