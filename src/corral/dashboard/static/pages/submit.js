// Submit a task: a form from its job type's schema, or JSON as it is.
import { html, useEffect, useMemo, useState } from "../core/dom.js";
import { get, part, post } from "../core/api.js";
import { useData } from "../core/live.js";
import { firstValue } from "../core/schema.js";
import { go, Link, setQuery } from "../core/router.js";
import { duration } from "../core/format.js";
import { Card, Choice, Page } from "../parts/page.js";
import { Empty, Loaded } from "../parts/state.js";
import { Field, Select, readForm } from "../parts/form.js";
import { JsonField, SchemaForm } from "../parts/schema.js";
import { Command } from "../parts/copy.js";
import { toast } from "../parts/toast.js";

const PRIORITIES = ["low", "normal", "high", "critical"];
const NUMBERS = { "-10": "low", 0: "normal", 10: "high", 100: "critical" };
const pairs = (text) => Object.fromEntries((text ?? "").split(/[\n,]+/).map((line) => line.trim()).filter(Boolean).map((line) => {
  const at = line.indexOf("=");
  if (at < 1) throw Object.assign(new Error(`"${line}" must read key=value`), { details: { field: "labels" } });
  return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
}));
const inPairs = (labels) => Object.entries(labels ?? {}).map(([key, value]) => `${key}=${value}`).join("\n");
const given = (values) => {
  const left = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return left.length ? Object.fromEntries(left) : undefined;
};

function bodyOf(type, parameters, told) {
  const resources = given({ cpus: told.cpus, memory_mb: told.memory_mb, gpus: told.gpus, gpu_memory_mb: told.gpu_memory_mb, gpu_kind: told.gpu_kind });
  const labels = pairs(told.labels);
  const nodes = pairs(told.node_labels);
  const needs = (told.depends_on ?? "").split(/[\s,]+/).filter(Boolean);
  return {
    task_type: type,
    parameters: parameters ?? {},
    ...given({ model_name: told.model_name, priority: told.priority === "normal" ? undefined : told.priority, timeout: told.timeout, retries: told.retries, run_after: told.run_after, profile: told.profile }),
    ...(Object.keys(labels).length ? { labels } : {}),
    ...(Object.keys(nodes).length ? { node_labels: nodes } : {}),
    ...(needs.length ? { depends_on: needs } : {}),
    ...(resources ? { resources } : {}),
    ...(told.no_cache ? { no_cache: true } : {}),
  };
}

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
const command = (type, parameters) => `corral run ${type} ${quoted(JSON.stringify(parameters ?? {}))}`;

function Options({ like }) {
  const wanted = like?.resources ?? {};
  return html`
    <div class="two">
      <${Field} name="model_name" label="Model" list="models" value=${like?.model_name ?? ""} />
      <${Select} name="priority" label="Priority" options=${PRIORITIES} value=${NUMBERS[like?.priority ?? 0] ?? "normal"} />
      <${Field} name="labels" label="Labels" multiline rows="2" value=${inPairs(like?.labels)} hint="key=value, one a line" />
      <${Field} name="retries" label="Retries" type="number" min="0" max="1000" value=${like?.retries || ""} placeholder="0" hint="how often a failed attempt is tried again" />
    </div>
    <details class="more" open=${Object.keys(wanted).length > 0}>
      <summary>Resources, time and place</summary>
      <div class="two">
        <${Field} name="gpus" label="GPUs" type="number" min="0" step="any" value=${wanted.gpus ?? ""} hint="0.5 is half of a card" />
        <${Field} name="gpu_memory_mb" label="GPU memory, MB" type="number" min="0" value=${wanted.gpu_memory_mb ?? ""} />
        <${Field} name="gpu_kind" label="Kind of GPU" value=${[wanted.gpu_kind ?? ""].flat().join(",")} hint="a part of its name, like H100" />
        <${Field} name="cpus" label="CPUs" type="number" min="0" step="any" value=${wanted.cpus ?? ""} />
        <${Field} name="memory_mb" label="Memory, MB" type="number" min="0" value=${wanted.memory_mb ?? ""} />
        <${Field} name="timeout" label="Time limit, seconds" type="number" min="0" step="any" value="" hint="for one attempt" />
        <${Field} name="run_after" label="Start in, seconds" type="number" min="0" step="any" value="" />
        <${Field} name="depends_on" label="After these tasks" value=${(like?.depends_on ?? []).join(" ")} hint="their ids" />
        <${Field} name="node_labels" label="Only on nodes with" multiline rows="2" value=${inPairs(like?.node_labels)} hint="key=value, one a line" />
        <${Select} name="profile" label="Profile" options=${[["", "no"], ["python", "time"], ["torch", "time in PyTorch"], ["memory", "memory"]]} value="" hint="the report is one of its files" />
        <${Field} name="no_cache" type="checkbox" label="Run it even if its answer is kept" />
      </div>
    </details>
  `;
}

function Body({ type, like, models }) {
  const schema = type.input_schema;
  const [mode, setMode] = useState(schema ? "form" : "json");
  const [value, setValue] = useState(() => (like ? like.parameters : schema ? firstValue(schema, schema) : {}));
  const [fault, setFault] = useState(null);
  const [isBusy, setBusy] = useState(false);
  // Made once: what was typed stays when something else changes.
  const options = useMemo(() => html`<${Options} like=${like} />`, [like]);
  const submit = async (event) => {
    event.preventDefault();
    const form = event.target;
    setBusy(true);
    setFault(null);
    try {
      const made = await post("/tasks", bodyOf(type.name, value, readForm(form)));
      toast(made.estimated_wait_time > 1 ? `Submitted; it should start in ${duration(made.estimated_wait_time)}` : "Submitted");
      go(`/tasks/${part(made.task_id)}`);
    } catch (error) {
      const path = error.details?.field;
      setFault({ path, message: error.message });
      const name = path?.replace(/^resources\./, "");
      form.elements[name]?.focus?.();
      setBusy(false);
    }
  };
  const isPlaced = fault?.path?.startsWith("parameters") && mode === "form" && schema;
  return html`
    <form onSubmit=${submit} aria-busy=${isBusy}>
      <div class="cards submit">
        <${Card} title="Input" aside=${schema && html`<${Choice} label="How to write it" value=${mode} options=${[["form", "Form"], ["json", "JSON"]]} onChange=${setMode} />`}>
          ${mode === "form" && schema
            ? html`<${SchemaForm} schema=${schema} value=${value} onChange=${setValue} fault=${fault} path="parameters" />`
            : html`<div class="field"><label for="raw-json">Parameters as JSON</label><${JsonField} id="raw-json" rows="12" value=${value} onChange=${setValue} data-path="parameters" /></div>`}
          ${!schema && html`<p class="hint">This type has no schema. With one (<code>input_schema</code> of <code>POST /job-types</code>), there is a form here.</p>`}
        </${Card}>
        <${Card} title="How to run it">${options}<datalist id="models">${models.map((name) => html`<option key=${name} value=${name} />`)}</datalist></${Card}>
      </div>
      <div class="submit-bar">
        ${fault && !isPlaced && html`<p class="fault" role="alert">${fault.path ? html`<b>${fault.path}</b>: ` : ""}${fault.message}</p>`}
        ${isPlaced && html`<p class="fault">Not submitted: ${fault.message}</p>`}
        <div><${Command}>${command(type.name, value)}</${Command}><button class="main" type="submit" disabled=${isBusy}>Submit</button></div>
      </div>
    </form>
  `;
}

export default function Submit({ query }) {
  const types = useData("/job-types", { events: ["job_type_changed"] });
  const placed = useData("/models/assignments");
  const catalogue = useData("/models", { query: { limit: 1000 } });
  const [like, setLike] = useState(undefined);
  useEffect(() => {
    if (!query.like) return setLike(null);
    setLike(undefined);
    get(`/tasks/${part(query.like)}`).then(setLike, (error) => (toast(error.message, "bad"), setLike(null)));
  }, [query.like]);
  const models = useMemo(() => [...new Set([
    ...(catalogue.data?.models ?? []).map((one) => one.name),
    ...(placed.data?.assignments ?? []).flatMap((one) => one.models.map((model) => model.name)),
  ])].sort(), [catalogue.data, placed.data]);
  return html`<${Page} title="Submit a task" back=${["/tasks", "Tasks"]}>
    <${Loaded} from=${types}>${({ job_types: all }) => {
      if (!all.length) return html`<${Card}><${Empty} title="There is no job type yet" hint="Launch a worker; what it serves appears here:"><${Command}>corral worker launch corral.EchoWorker --job-type echo</${Command}></${Empty}></${Card}>`;
      if (like === undefined) return null;
      const name = query.type ?? like?.task_type ?? all.find((one) => one.input_schema)?.name ?? all[0].name;
      const type = all.find((one) => one.name === name);
      return html`
        <div class="filters"><label>Job type <select value=${name} onChange=${(event) => setQuery({ type: event.target.value, like: "" })}>
          ${all.map((one) => html`<option key=${one.name} value=${one.name} selected=${one.name === name}>${one.name}</option>`)}
          ${!type && html`<option value=${name} selected>${name}</option>`}
        </select></label>
        ${type?.paused && html`<span class="hint">This type is paused: the task will wait. <${Link} to="/queues">Queues</${Link}></span>`}
        ${like && html`<span class="hint">As <${Link} to=${`/tasks/${part(like.task_id)}`}>${like.task_id}</${Link}> was.</span>`}</div>
        <${Body} key=${`${name} ${like?.task_id ?? ""}`} type=${type ?? { name, input_schema: null }} like=${like?.task_type === name ? like : null} models=${models} />`;
    }}</${Loaded}>
  </${Page}>`;
}
