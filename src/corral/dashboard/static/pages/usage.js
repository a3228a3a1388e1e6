// Who used how many GPU-hours, as a plot, as a table, and for a sheet.
import { html, useMemo, useState } from "../core/dom.js";
import { download } from "../core/api.js";
import { count } from "../core/format.js";
import { useData } from "../core/live.js";
import { setQuery } from "../core/router.js";
import { Bar } from "../parts/bar.js";
import { Card, Choice, Figure, Page } from "../parts/page.js";
import { COLOURS, epochs, Plot } from "../parts/plot.js";
import { Range, rangeOf } from "../parts/range.js";
import { Empty, Loaded } from "../parts/state.js";
import { Table } from "../parts/table.js";
import { act } from "../parts/toast.js";

const WAYS = [["owner", "User"], ["job_type", "Job type"], ["label", "Label"]];
const TITLES = { owner: "User", job_type: "Job type", label: "Label" };
const hours = (value) => `${value >= 100 ? count(Math.round(value)) : Number(value.toPrecision(value < 1 ? 2 : 3))} h`;
const SHOWN = COLOURS.length;

const columns = (title, most) => [
  { name: "name", title, cell: (row) => row.name || html`<span class="hint">without it</span>`, sort: (row) => row.name },
  { name: "share", title: "Share of GPU-hours", cell: (row) => html`<${Bar} share=${most ? row.gpu_hours / most : 0} label="Share" plain />`, isExtra: true },
  { name: "gpu", title: "GPU-hours", isNumber: true, cell: (row) => hours(row.gpu_hours), sort: (row) => row.gpu_hours },
  { name: "hours", title: "Task-hours", isNumber: true, cell: (row) => hours(row.hours), sort: (row) => row.hours },
  { name: "runs", title: "Runs", isNumber: true, cell: (row) => count(row.runs), sort: (row) => row.runs },
];

function Told({ told, title }) {
  // Where no task had a GPU, the time they took tells more than a row of zeros.
  const times = useMemo(() => epochs(told.times), [told]);
  const lines = useMemo(
    () => told.groups.slice(0, SHOWN).map((group) => ({ label: group.name || "without it", values: group.series })),
    [told],
  );
  const runs = told.groups.reduce((sum, group) => sum + group.runs, 0);
  if (!told.groups.length) {
    return html`<${Card}><${Empty} title="Nothing ran in this time" hint="Choose a longer one, or run a task:" command=${"corral run echo '{\"message\": \"hi\"}'"} /></${Card}>`;
  }
  return html`
    <div class="figures">
      <${Figure} name="GPU-hours" value=${hours(told.gpu_hours)} note="GPUs that tasks had, by time" />
      <${Figure} name="Task-hours" value=${hours(told.hours)} note="time that tasks ran" />
      <${Figure} name="Runs" value=${count(runs)} note="that ended" />
    </div>
    <div class="stack">
      <${Card} title="GPU-hours ${told.step_s > 3600 ? "a day" : "an hour"}" aside=${told.groups.length > SHOWN ? `the ${SHOWN} that used most` : ""}>
        <${Plot} title="GPU-hours by ${title}" times=${times} series=${lines} format=${hours} height=${230} isStacked /></${Card}>
      <${Card} title="By ${title.toLowerCase()}"><${Table} label="Usage by ${title}" rows=${told.groups} id=${(row) => row.name || "-"} columns=${columns(title, told.gpu_hours)} sort="-gpu" /></${Card}>
    </div>
  `;
}

export default function UsagePage({ query }) {
  const range = rangeOf(query, "7d");
  const way = TITLES[query.by] ? query.by : "owner";
  const [key, setKey] = useState(query.key ?? "");
  const isReady = way !== "label" || Boolean(query.key);
  const by = way === "label" ? `label:${query.key}` : way;
  const ask = { by, from: `-${range}` };
  const usage = useData(isReady ? "/usage" : null, { query: ask, every: 60 });
  const save = () => act(download("/usage", `usage-${way}-${range}.csv`, { query: ask, headers: { Accept: "text/csv" } }), "Saved as CSV");
  const title = way === "label" ? query.key ?? "Label" : TITLES[way];
  return html`<${Page} title="Usage" lead="GPUs that tasks had, multiplied by the time they ran."
    actions=${html`<${Range} value=${range} /><button onClick=${save} disabled=${!isReady}>Save as CSV</button>`}>
    <div class="filters">
      <${Choice} label="By" value=${way} options=${WAYS} onChange=${(by) => setQuery({ by })} />
      ${way === "label" && html`<form class="row" onSubmit=${(event) => { event.preventDefault(); setQuery({ key: key.trim() }); }}>
        <label>Label <input name="key" value=${key} onInput=${(event) => setKey(event.target.value)} placeholder="team" maxlength="200" /></label><button>Show</button></form>`}
    </div>
    ${isReady
      ? html`<${Loaded} from=${usage}>${(told) => html`<${Told} key=${by} told=${told} title=${title} />`}</${Loaded}>`
      : html`<${Card}><${Empty} title="Which label?" hint="Tasks are put together by the values of a label they were submitted with, such as team." /></${Card}>`}
  </${Page}>`;
}
