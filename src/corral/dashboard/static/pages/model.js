// One model: where it is, what loads of it took, its files.
import { html } from "../core/dom.js";
import { del, may, part } from "../core/api.js";
import { useData } from "../core/live.js";
import { go, Link } from "../core/router.js";
import { bytes, count, duration, megabytes } from "../core/format.js";
import { Card, Facts, Page } from "../parts/page.js";
import { Badge, Chip } from "../parts/badge.js";
import { Bar } from "../parts/bar.js";
import { Table } from "../parts/table.js";
import { Ago } from "../parts/time.js";
import { Empty, Fault, Loaded } from "../parts/state.js";
import { act } from "../parts/toast.js";
import { confirm } from "../parts/dialog.js";
import { RowActions } from "../parts/tile.js";
import { openLoad } from "../parts/load.js";
import { pin, pull, unload } from "./models.js";

const EVENTS = ["model_loaded", "model_unloaded", "model_changed"];
const mono = (text) => html`<span class="mono">${text}</span>`;

const MEASURES = [
  { name: "device", title: "Device", cell: (row) => row.device },
  { name: "precision", title: "Precision", cell: (row) => row.precision },
  { name: "memory", title: "Memory", isNumber: true, cell: (row) => megabytes(row.memory_mb) },
  { name: "load", title: "Loads in", isNumber: true, cell: (row) => duration(row.load_time) },
  { name: "loads", title: "Loads", isNumber: true, isExtra: true, cell: (row) => count(row.loads) },
  { name: "batches", title: "Batches take", isExtra: true, cell: (row) => Object.entries(row.batch_memory_mb).map(([size, mb]) => `${size}: ${megabytes(mb)}`).join(", ") || "–" },
];
const FILES = [
  { name: "name", title: "File", isWide: true, cell: (row) => mono(row.name), sort: (row) => row.name },
  { name: "size", title: "Size", isNumber: true, cell: (row) => bytes(row.size), sort: (row) => row.size },
  { name: "sha", title: "SHA-256", isExtra: true, cell: (row) => mono(`${row.sha256.slice(0, 16)}…`) },
];

const Entry = ({ model }) => html`
  ${model.error && html`<div class="fault">${model.error}</div>`}
  ${model.status === "reading" && html`<${Bar} plain label="Read" share=${model.total_bytes ? model.read_bytes / model.total_bytes : null} text=${bytes(model.read_bytes)} />`}
  <${Facts} rows=${[
    ["State", html`<${Badge} state=${model.status} look=${model.status === "reading" ? "busy" : undefined} />`],
    ["Kind", model.type], ["Source", mono(model.source)], ["Revision", model.revision], ["Precision", model.dtype],
    ["Files", bytes(model.size_bytes)], ["Memory", model.memory_mb && megabytes(model.memory_mb)],
    ["Uses", count(model.usage_count)], ["Loads", count(model.loads)],
    ["Last used", model.last_used && html`<${Ago} at=${model.last_used} />`], ["Added", html`<${Ago} at=${model.created_at} />`],
    ["Tags", model.tags.length ? model.tags.map((tag) => html`<${Chip} key=${tag}>${tag}</${Chip}> `) : null],
    ["Code beside the weights", model.trust_remote_code ? "is trusted" : null],
  ]} />`;

export default function Model({ params: { id } }) {
  // Looked for first: models that workers bring themselves are in no catalogue.
  const listed = useData("/models", { query: { search: id, limit: 1000 }, events: EVENTS });
  const isListed = (listed.data?.models ?? []).some((one) => one.name === id);
  const found = useData(isListed ? `/models/${part(id)}` : null, { events: EVENTS });
  const placed = useData("/models/assignments", { events: EVENTS, every: 15 });
  const workers = useData(may("operate") ? "/workers" : null);
  const reload = () => (listed.reload(), found.reload(), placed.reload());
  const isKnown = isListed && found.data !== null;
  const rows = (placed.data?.assignments ?? []).flatMap((one) => one.models.filter((model) => model.name === id).map((model) => ({ ...model, worker: one })));
  const how = new Map((found.data?.placed ?? []).map((one) => [one.worker_id, one]));
  const columns = [
    { name: "worker", title: "Worker", cell: (row) => html`<${Link} to=${`/workers/${part(row.worker.worker_id)}`}>${row.worker.worker_name}</${Link}>` },
    { name: "status", title: "State", cell: (row) => html`<${Badge} state=${row.status} />${row.pinned && html` <${Chip}>pinned</${Chip}>`}` },
    { name: "memory", title: "Memory", isNumber: true, cell: (row) => megabytes(row.memory_usage) },
    { name: "device", title: "Device", isExtra: true, cell: (row) => [how.get(row.worker.worker_id)?.device, how.get(row.worker.worker_id)?.precision].filter(Boolean).join(", ") || "–" },
    { name: "load", title: "Loaded in", isNumber: true, isExtra: true, cell: (row) => duration(row.load_time ?? row.estimated_load_time) },
    { name: "used", title: "Used", isExtra: true, cell: (row) => html`<${Ago} at=${row.last_used} />` },
    may("operate") && { name: "act", title: html`<span class="hidden-text">Actions</span>`, isNumber: true, cell: (row) => html`<${RowActions} of=${row.worker.worker_name} actions=${[
      [row.pinned ? "Unpin" : "Pin", () => pin(id, row.worker.worker_id, !row.pinned, reload)],
      row.status === "loaded" && ["Unload", () => unload(id, row.worker.worker_id, reload)],
    ]} />` },
  ].filter(Boolean);
  const remove = async () =>
    (await confirm({ title: `Remove ${id} from the catalogue?`, text: "Workers that have it in memory keep it. Its files may be deleted.", action: "Remove", isGrave: true })) &&
    (await act(del(`/models/${part(id)}`), `${id} is removed`)) && go("/models");
  const actions = may("operate") && html`
    ${isKnown && html`<button class="grave" onClick=${remove}>Remove</button><button onClick=${() => pull(id, reload)}>Have nodes fetch it</button>`}
    <button class="main" onClick=${async () => (await openLoad({ model: id, workers: workers.data?.workers ?? [] })) && reload()}>Load it</button>`;
  return html`<${Page} title=${id} back=${["/models", "Models"]} actions=${actions}>
    <div class="stack">
      <${Card} title="Where it is"><${Loaded} from=${placed}>${() => html`<${Table} label="Where it is" rows=${rows} id=${(row) => row.worker.worker_id} columns=${columns}
        empty=${html`<${Empty} title="No worker has it" hint="The next task that names it has it loaded." />`} />`}</${Loaded}></${Card}>
      ${(listed.error ?? found.error) && html`<${Fault} error=${listed.error ?? found.error} retry=${reload} />`}
      ${listed.data && !isListed && html`<${Card} title="Catalogue"><p class="hint">It is not in the catalogue: its workers bring it themselves.</p></${Card}>`}
      ${isKnown && html`<${Card} title="Catalogue"><${Entry} model=${found.data} /></${Card}>
        ${found.data.measures.length > 0 && html`<${Card} title="What loads came to"><${Table} label="Measures" rows=${found.data.measures} id=${(row) => `${row.device} ${row.precision}`} columns=${MEASURES} /></${Card}>`}
        ${found.data.files.length > 0 && html`<${Card} title="Files" aside=${bytes(found.data.size_bytes)}><${Table} label="Files" rows=${found.data.files} id=${(row) => row.name} columns=${FILES} sort="name" /></${Card}>`}`}
    </div>
  </${Page}>`;
}
