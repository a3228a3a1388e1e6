// Models: which is where, what it takes, how often it was used; load, unload, pin; the catalogue.
import { html } from "../core/dom.js";
import { may, part, post } from "../core/api.js";
import { useData } from "../core/live.js";
import { Link } from "../core/router.js";
import { bytes, count, duration, megabytes, NONE } from "../core/format.js";
import { Card, Figure, Page } from "../parts/page.js";
import { Badge, Chip } from "../parts/badge.js";
import { Bar } from "../parts/bar.js";
import { Table } from "../parts/table.js";
import { Ago } from "../parts/time.js";
import { Empty, Loaded } from "../parts/state.js";
import { Field, Select } from "../parts/form.js";
import { Command } from "../parts/copy.js";
import { act } from "../parts/toast.js";
import { confirm } from "../parts/dialog.js";
import { openForm, RowActions } from "../parts/tile.js";
import { Host } from "../parts/host.js";
import { openLoad } from "../parts/load.js";

const EVENTS = ["model_loaded", "model_unloaded", "model_changed", "worker_status_changed"];
const KINDS = ["other", "llm", "embedding", "classifier", "vision", "diffusion", "tts"];

export const openAdd = () =>
  openForm({
    title: "Add a model to the catalogue",
    action: "Add",
    send: (told) =>
      post("/models", {
        name: told.name, source: told.source, type: told.type ?? "other", revision: told.revision ?? "",
        dtype: told.dtype ?? null, memory_mb: told.memory_mb ?? null,
        tags: (told.tags ?? "").split(/[\s,]+/).filter(Boolean), trust_remote_code: told.trust_remote_code ?? false,
      }),
    Fields: () => html`
      <${Field} name="name" label="Name" required hint="how tasks ask for it" />
      <${Field} name="source" label="Source" required placeholder="hf:owner/name" hint="a folder of the manager's machine, hf:owner/name, s3://bucket/prefix, or model-manager" />
      <div class="two">
        <${Select} name="type" label="Kind" options=${KINDS} value="other" />
        <${Field} name="revision" label="Revision" />
        <${Field} name="dtype" label="Precision" placeholder="bfloat16" />
        <${Field} name="memory_mb" label="Memory, MB" type="number" min="0" hint="where it is not measured yet" />
      </div>
      <${Field} name="tags" label="Tags" hint="words, with commas between them" />
      ${may("admin") && html`<${Field} name="trust_remote_code" type="checkbox" label="Run code that lies beside the weights" />`}`,
  });

export const unload = async (model, worker, reload) =>
  (await confirm({ title: `Unload ${model}?`, text: `${worker} drops it once nothing uses it. The next task that wants it loads it again.`, action: "Unload" })) &&
  (await act(post("/models/unload", { model_name: model, worker_ids: [worker] }), `${model} is unloaded`)) && reload();

export const pin = async (model, worker, isPinned, reload) =>
  (await act(post("/models/assign", { model_name: model, worker_ids: [worker], pin: isPinned, preload: isPinned }), isPinned ? `${model} is kept there` : `${model} may be dropped again`)) && reload();

export const pull = (model, reload) => act(post(`/models/${part(model)}/pull`, {}), `Nodes fetch ${model}; see its tasks`).then((isDone) => isDone && reload());

const placedColumns = (reload) => [
  { name: "model", title: "Model", isMain: true, under: (row) => row.worker_name, cell: (row) => html`<${Link} to=${`/models/${part(row.name)}`}>${row.name}</${Link}>`, sort: (row) => row.name },
  { name: "status", title: "State", cell: (row) => html`<${Badge} state=${row.status} />${row.pinned && html` <${Chip} title="never dropped">pinned</${Chip}>`}`, sort: (row) => row.status },
  { name: "worker", title: "Worker", isExtra: true, cell: (row) => html`<${Link} to=${`/workers/${part(row.worker_id)}`}>${row.worker_name}</${Link}>`, sort: (row) => row.worker_name },
  { name: "node", title: "Node", isExtra: true, cell: (row) => html`<${Host} id=${row.node_id} />`, sort: (row) => row.node_id },
  { name: "memory", title: "Memory", isExtra: true, isNumber: true, cell: (row) => megabytes(row.memory_usage), sort: (row) => row.memory_usage },
  { name: "load", title: "Loaded in", isExtra: true, isNumber: true, cell: (row) => duration(row.load_time), sort: (row) => row.load_time },
  { name: "used", title: "Used", isExtra: true, cell: (row) => html`<${Ago} at=${row.last_used} />`, sort: (row) => -Date.parse(row.last_used ?? 0) },
  may("operate") && { name: "act", title: html`<span class="hidden-text">Actions</span>`, isNumber: true, cell: (row) => html`<${RowActions} of="${row.name} on ${row.worker_name}" actions=${[
    [row.pinned ? "Unpin" : "Pin", () => pin(row.name, row.worker_id, !row.pinned, reload)],
    row.status === "loaded" && ["Unload", () => unload(row.name, row.worker_id, reload)],
  ]} />` },
].filter(Boolean);

const CATALOGUE = [
  { name: "name", title: "Name", cell: (row) => html`<${Link} to=${`/models/${part(row.name)}`} tabindex="-1">${row.name}</${Link}>`, sort: (row) => row.name },
  { name: "type", title: "Kind", isExtra: true, cell: (row) => row.type, sort: (row) => row.type },
  { name: "status", title: "State", cell: (row) => html`<${Badge} state=${row.status} look=${row.status === "reading" ? "busy" : undefined} title=${row.error} />`, sort: (row) => row.status },
  { name: "size", title: "Files", isNumber: true, isExtra: true, cell: (row) => bytes(row.size_bytes), sort: (row) => row.size_bytes },
  { name: "memory", title: "Memory", isNumber: true, isExtra: true, cell: (row) => megabytes(row.memory_mb), sort: (row) => row.memory_mb },
  { name: "workers", title: "On workers", isNumber: true, cell: (row) => count(row.workers.length), sort: (row) => row.workers.length },
  { name: "uses", title: "Uses", isNumber: true, cell: (row) => count(row.usage_count), sort: (row) => row.usage_count },
  { name: "loads", title: "Loads", isNumber: true, isExtra: true, cell: (row) => count(row.loads), sort: (row) => row.loads },
  { name: "used", title: "Last used", isExtra: true, cell: (row) => html`<${Ago} at=${row.last_used} />`, sort: (row) => -Date.parse(row.last_used ?? 0) },
];

function Room({ rows }) {
  const known = rows.filter((one) => one.memory);
  if (!known.length) return null;
  return html`<${Card} title="Memory for models"><div class="stack tight">${known.slice(0, 40).map((one) => html`
    <div class="room" key=${one.worker_id}><${Link} to=${`/workers/${part(one.worker_id)}`}>${one.worker_name}</${Link}>
      <${Bar} share=${one.memory_usage / one.memory} label="Memory of ${one.worker_name}" text=${`${megabytes(one.memory_usage)} of ${megabytes(one.memory)}`} /></div>`)}</div></${Card}>`;
}

export default function Models() {
  const placed = useData("/models/assignments", { events: EVENTS, every: 15 });
  const catalogue = useData("/models", { query: { limit: 1000 }, events: EVENTS, every: 30 });
  const workers = useData("/workers", { events: ["worker_status_changed"] });
  const reload = () => (placed.reload(), catalogue.reload());
  const held = (placed.data?.assignments ?? []).flatMap((one) => one.models.map((model) => ({ ...model, ...{ worker_id: one.worker_id, worker_name: one.worker_name, node_id: one.node_id } })));
  const entries = catalogue.data?.models ?? [];
  const names = [...new Set([...entries.map((one) => one.name), ...held.map((one) => one.name)])].sort();
  const loads = entries.reduce((sum, one) => sum + one.loads, 0);
  const uses = entries.reduce((sum, one) => sum + one.usage_count, 0);
  const load = async () => (await openLoad({ models: names, workers: workers.data?.workers ?? [] })) && reload();
  return html`<${Page} title="Models" actions=${may("operate") && html`
      <button onClick=${async () => (await openAdd()) && reload()}>Add to the catalogue</button>
      <button class="main" disabled=${!workers.data?.workers.length} onClick=${load}>Load a model</button>`}>
    <div class="figures">
      <${Figure} name="In memory" value=${count(held.filter((one) => one.status === "loaded").length)} note=${`${new Set(held.map((one) => one.name)).size} different`} />
      <${Figure} name="Memory they take" value=${megabytes((placed.data?.assignments ?? []).reduce((sum, one) => sum + one.memory_usage, 0))} />
      <${Figure} name="In the catalogue" value=${count(catalogue.data?.total)} note=${uses ? `${count(uses)} uses, ${count(loads)} loads` : ""} />
      <${Figure} name="Uses without a load" value=${uses ? `${Math.max(0, Math.round(100 * (1 - loads / uses)))} %` : NONE} note="of the catalogue's models" />
    </div>
    <div class="stack">
      <${Card} title="Which model is where">
        <${Loaded} from=${placed}>${() => html`<${Table} label="Models on workers" rows=${held} id=${(row) => `${row.worker_id} ${row.name}`} columns=${placedColumns(reload)} sort="model"
          empty=${html`<${Empty} title="No worker has a model in memory" hint="Tasks that name one load it, or:"><${Command}>corral models load NAME WORKER</${Command}></${Empty}>`} />`}</${Loaded}>
      </${Card}>
      ${placed.data && html`<${Room} rows=${placed.data.assignments} />`}
      <${Card} title="Catalogue">
        <${Loaded} from=${catalogue}>${({ models }) => html`<${Table} label="Catalogue" rows=${models} id=${(row) => row.name} columns=${CATALOGUE} sort="name" to=${(row) => `/models/${part(row.name)}`}
          empty=${html`<${Empty} title="The catalogue is empty" hint="Models in it are fetched, checked and shared between nodes:"><${Command}>corral models add tiny hf:owner/name</${Command}></${Empty}>`} />`}</${Loaded}>
      </${Card}>
    </div>
  </${Page}>`;
}
