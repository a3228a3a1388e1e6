// One machine: what it is, how it did, what runs there; held back and let go.
import { html, useMemo } from "../core/dom.js";
import { may, part, post } from "../core/api.js";
import { count, duration, megabytes, moment, percent, rate, words } from "../core/format.js";
import { useData } from "../core/live.js";
import { Badge, Chip, Labels } from "../parts/badge.js";
import { Bar } from "../parts/bar.js";
import { confirm, openDialog } from "../parts/dialog.js";
import { EventTable } from "../parts/event_table.js";
import { Field, Form } from "../parts/form.js";
import { isWell } from "../parts/heat.js";
import { Card, Facts, Page } from "../parts/page.js";
import { epochs, Plot } from "../parts/plot.js";
import { Range, rangeOf, REDRAW } from "../parts/range.js";
import { Empty, Loaded } from "../parts/state.js";
import { Ago } from "../parts/time.js";
import { act, toast } from "../parts/toast.js";
import { WorkerTable } from "../parts/worker_table.js";
import { gpuWords, nodeState } from "./nodes.js";

const hold = (node, verb, text, reload) =>
  openDialog(
    ({ close }) => html`
      <p>${text}</p>
      <${Form} action=${verb} onCancel=${() => close()} onSubmit=${async ({ reason, hours }) => {
        const until = hours ? hours * 3600 : null;
        await post(`/nodes/${part(node.node_id)}/${verb.toLowerCase()}`, { reason: reason ?? "", until });
        toast(`${node.hostname}: ${verb.toLowerCase()} is set`);
        close();
        reload();
      }}>
        <${Field} name="reason" label="Reason" hint="Others see it." maxlength="200" autofocus />
        <${Field} name="hours" label="For hours" type="number" min="0" step="any" hint="Empty: until it is let go." />
      </${Form}>
    `,
    { title: `${verb} ${node.hostname}` },
  );

function Actions({ node, reload }) {
  if (!may("operate")) return null;
  const isHeld = node.holds.some((one) => one.source === "operator");
  const free = async () => (await act(post(`/nodes/${part(node.node_id)}/uncordon`), `${node.hostname} gets work again`)) && reload();
  return html`
    ${isHeld && html`<button class="main" onClick=${free}>Uncordon</button>`}
    <button onClick=${() => hold(node, "Cordon", "It gets nothing new; what it runs goes on.", reload)}>Cordon</button>
    <button class="grave" onClick=${() => hold(node, "Drain", "It gets nothing new, and its workers stop when they are done.", reload)}>Drain</button>
  `;
}

function About({ node }) {
  const machine = node.capabilities;
  return html`<${Card} title="About" wide><${Facts} rows=${[
    ["Id", html`<span class="mono">${node.node_id}</span>`],
    ["Address", node.address],
    ["System", machine.system],
    ["Processors", machine.cpu_count],
    ["Memory", megabytes(machine.memory_total_mb)],
    ["GPUs", gpuWords(node.gpus) || "none"],
    ["Corral", node.version_skew ? `${node.version} (${words(node.version_skew)})` : node.version],
    ["Joined", html`<${Ago} at=${node.joined_at} />`],
    ["Last heard", html`<${Ago} at=${node.last_heartbeat} />`],
    ["Clock", node.clock_skew_s && Math.abs(node.clock_skew_s) > 0.5 ? `${duration(Math.abs(node.clock_skew_s))} off` : null],
    ["Labels", Object.keys(node.labels).length ? html`<${Labels} labels=${node.labels} />` : null],
    ["Taints", node.taints.length ? node.taints.map((taint) => html`<${Chip} key=${taint}>${taint}</${Chip}> `) : null],
    ...node.holds.map((one) => [`Held by ${one.source}`, `${one.reason || "no reason given"}${one.until ? `, until ${moment(one.until)}` : ""}`]),
    ...node.windows.map((one) => [`Window ${one.name}`, one.next_at ? `next ${moment(one.next_at)}` : "over"]),
  ]} /></${Card}>`;
}

const share = (values, total) => values.map((value) => (value === null || !total ? null : (100 * value) / total));

const GpuCard = ({ node, gpu, times, series, reload }) => {
  const lines = useMemo(() => [
    { label: "busy", values: series.utilization_percent.average, colour: "c1" },
    { label: "memory", values: share(series.memory_used_mb.average, gpu.memory_total_mb), colour: "c4" },
  ], [series]);
  const heat = useMemo(() => [
    { label: "temperature, °C", values: series.temperature_c.average, colour: "c2" },
    { label: "power, W", values: series.power_w.average, colour: "c7" },
  ], [series]);
  const hasHeat = heat.some((one) => one.values.some((value) => value !== null));
  const release = async () =>
    (await confirm({ title: `Offer GPU ${gpu.index} again?`, text: "It was taken out after repeated errors.", action: "Offer it" })) &&
    (await act(post(`/nodes/${part(node.node_id)}/gpus/${part(gpu.id)}/release`), "The card is offered again")) && reload();
  return html`<${Card} title="GPU ${gpu.index} · ${gpu.name}" aside=${html`${isWell(gpu) ? "" : html`<${Badge} state=${gpu.error ? "error" : gpu.health} title=${gpu.error} />`}
      ${gpu.quarantine && may("operate") ? html`<button class="small" onClick=${release}>Offer again</button>` : ""}${gpu.is_offered ? "" : html`<${Chip}>not offered</${Chip}>`}`}>
    <${Bar} label="Memory of GPU ${gpu.index}" share=${gpu.memory_total_mb ? gpu.memory_used_mb / gpu.memory_total_mb : null} text="${megabytes(gpu.memory_used_mb)} / ${megabytes(gpu.memory_total_mb)}" plain />
    <${Plot} title="Use and memory of GPU ${gpu.index}" times=${times} series=${lines} format=${percent} range=${[0, 100]} height=${130} />
    ${hasHeat && html`<${Plot} title="Temperature and power of GPU ${gpu.index}" times=${times} series=${heat} format=${(value) => count(Math.round(value))} height=${110} />`}
  </${Card}>`;
};

const EMPTY = { average: [] };

function Series({ node, told, reload }) {
  const times = useMemo(() => epochs(told.times), [told]);
  const one = (name, label, colour) => useMemo(() => [{ label, values: told.series[name].average, colour }], [told]);
  const net = useMemo(() => [
    { label: "in", values: told.series.network_rx_bytes_s.average, colour: "c3" },
    { label: "out", values: told.series.network_tx_bytes_s.average, colour: "c2" },
  ], [told]);
  const cpu = one("cpu_percent", "CPU", "c1");
  const memory = one("memory_percent", "memory", "c4");
  const disk = one("disk_percent", "disk", "c7");
  const full = (name) => {
    const at = told.series[name].trend.full_at;
    return at ? html`<${Badge} look="warn">full ${moment(at)}</${Badge}>` : "";
  };
  const none = { utilization_percent: EMPTY, memory_used_mb: EMPTY, temperature_c: EMPTY, power_w: EMPTY };
  const cards = node.gpus.map((gpu) => [gpu, told.gpus.find((found) => found.id === gpu.id)?.series ?? none]);
  return html`
    <div class="quarters">
    <${Card} title="CPU"><${Plot} title="CPU" times=${times} series=${cpu} format=${percent} range=${[0, 100]} isArea height=${140} /></${Card}>
    <${Card} title="Memory" aside=${full("memory_used_mb")}><${Plot} title="Memory" times=${times} series=${memory} format=${percent} range=${[0, 100]} isArea height=${140} /></${Card}>
    <${Card} title="Disk" aside=${full("disk_used_gb")}><${Plot} title="Disk" times=${times} series=${disk} format=${percent} range=${[0, 100]} isArea height=${140} /></${Card}>
    <${Card} title="Network"><${Plot} title="Network" times=${times} series=${net} format=${rate} height=${140} isBinary /></${Card}>
    </div>
    <div class="cards">
    ${cards.map(([gpu, series]) => html`<${GpuCard} key=${gpu.id} node=${node} gpu=${gpu} times=${times} series=${series} reload=${reload} />`)}
    </div>
  `;
}

export default function NodePage({ params, query }) {
  const range = rangeOf(query);
  const mine = (event) => event.data.node_id === params.id;
  const node = useData(`/nodes/${part(params.id)}`, { events: ["node_status_changed", "worker_status_changed", "gpu_alert"], matches: mine, every: 10 });
  const metrics = useData(`/nodes/${part(params.id)}/metrics`, { query: { from: `-${range}` }, every: REDRAW[range] });
  const workers = useData("/workers", { query: { node_id: params.id }, events: ["worker_status_changed"], matches: mine, every: 15 });
  const events = useData("/events", { query: { node_id: params.id, limit: 50 }, events: ["node_status_changed", "worker_status_changed", "alert"], every: 30 });
  const found = node.data;
  return html`<${Page} title=${found?.hostname ?? "Node"} back=${["/nodes", "Nodes"]} lead=${found && html`<${Badge} state=${nodeState(found)} />`}
    actions=${found && html`<${Range} value=${range} /><${Actions} node=${found} reload=${node.reload} />`}>
    <${Loaded} from=${node}>${(row) => html`<div class="stack">
      <${About} node=${row} />
      <${Loaded} from=${metrics}>${(told) => html`<${Series} node=${row} told=${told} reload=${node.reload} />`}</${Loaded}>
      <${Card} title="Workers" wide><${Loaded} from=${workers}>${(data) => html`<${WorkerTable} workers=${data.workers.filter((one) => one.node_id === params.id)}
        empty=${html`<${Empty} title="No worker here" command="corral worker launch CLASS --node ${row.hostname}" />`} />`}</${Loaded}></${Card}>
      <${Card} title="Events" wide><${Loaded} from=${events}>${(data) => html`<${EventTable} events=${data.events} />`}</${Loaded}></${Card}>
    </div>`}</${Loaded}>
  </${Page}>`;
}
