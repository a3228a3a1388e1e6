// Simulate: the cluster's own scheduler in virtual time, with other workers, more work or
// another policy, side by side.
import { html, useMemo, useState } from "../core/dom.js";
import { may, post } from "../core/api.js";
import { count, duration, percent } from "../core/format.js";
import { Card, Page } from "../parts/page.js";
import { Bar } from "../parts/bar.js";
import { Table } from "../parts/table.js";
import { Empty } from "../parts/state.js";
import { Field, Form, Select } from "../parts/form.js";
import { Command } from "../parts/copy.js";
import { COLOURS } from "../parts/plot.js";

const POLICIES = [
  ["", "as the cluster has it"], ["smith", "smith"], ["least_loaded", "least loaded"], ["weighted_round_robin", "weighted round robin"],
  ["affinity", "affinity"], ["smith,least_loaded,weighted_round_robin,affinity", "all four, compared"],
];
const LOADS = [[1, "as it was"], [1.5, "half as much again"], [2, "twice as much"], [4, "four times"], [0.5, "half"]];
const seconds = (value) => duration(value);
const PANELS = [
  ["Mean time from arrival to end", "mean_s", seconds],
  ["99 of 100 tasks ended within", "p99_s", seconds],
  ["Ended within 5 times their own run", "slo_pct", (value) => percent(value, 1)],
  ["Workers at work", "utilization_pct", (value) => percent(value, 1)],
  ["Loads of models", "loads", count],
];

const COLUMNS = [
  { name: "scenario", title: "Scenario", cell: (row) => row.scenario },
  { name: "workers", title: "Workers", isNumber: true, isExtra: true, cell: (row) => count(row.workers) },
  { name: "mean", title: "Mean", isNumber: true, cell: (row) => duration(row.mean_s) },
  { name: "p99", title: "99 %", isNumber: true, cell: (row) => duration(row.p99_s) },
  { name: "high", title: "99 % of high", isNumber: true, isExtra: true, cell: (row) => duration(row.p99_high_s) },
  { name: "slo", title: "In time", isNumber: true, cell: (row) => percent(row.slo_pct, 1) },
  { name: "load_h", title: "Loading", isNumber: true, isExtra: true, cell: (row) => duration(row.load_hours * 3600) },
  { name: "redone", title: "Redone", isNumber: true, isExtra: true, cell: (row) => count(row.redone) },
  { name: "never", title: "Never ran", isNumber: true, isExtra: true, cell: (row) => count(row.left + row.expired) },
];

const ink = (place) => COLOURS[place % COLOURS.length];

function Bars({ title, field, format, rows }) {
  const most = Math.max(1e-9, ...rows.map((row) => row[field]));
  return html`<div><h3>${title}</h3><ol>${rows.map((row, place) => html`<li key=${place} class=${ink(place)}>
    <span class="clip" title=${row.scenario}>${row.scenario}</span>
    <${Bar} plain share=${row[field] / most} text=${format(row[field])} label="${title}, ${row.scenario}" /></li>`)}</ol></div>`;
}

const [W, H, LEFT, BOTTOM] = [960, 260, 50, 30];

function Curves({ rows }) {
  const drawn = rows.filter((row) => row.curve.length);
  if (!drawn.length) return null;
  const all = drawn.flatMap((row) => row.curve.map(([at]) => Math.max(at, 1e-3)));
  const low = Math.log10(Math.min(...all));
  const high = Math.max(low + 0.1, Math.log10(Math.max(...all)));
  const x = (at) => LEFT + ((Math.log10(Math.max(at, 1e-3)) - low) / (high - low)) * (W - LEFT - 10);
  const y = (share) => 8 + (1 - share / 100) * (H - BOTTOM - 8);
  const ticks = [];
  for (let power = Math.ceil(low); power <= high; power++) ticks.push(10 ** power);
  if (ticks.length < 2) ticks.splice(0, ticks.length, 10 ** low, 10 ** ((low + high) / 2), 10 ** high);
  return html`<figure><svg class="curves" viewBox="0 0 ${W} ${H}" role="img" aria-label="Percentage of tasks that had ended, by seconds from their arrival">
    ${[0, 25, 50, 75, 100].map((share) => html`<g key=${share}><line x1=${LEFT} x2=${W - 10} y1=${y(share)} y2=${y(share)} /><text x=${LEFT - 6} y=${y(share) + 4} text-anchor="end">${share} %</text></g>`)}
    ${ticks.map((at) => html`<text key=${at} x=${x(at)} y=${H - 10} text-anchor="middle">${duration(at)}</text>`)}
    ${drawn.map((row, place) => html`<path key=${place} class=${ink(place)} d=${row.curve.map(([at, share], i) => `${i ? "L" : "M"}${x(at).toFixed(1)} ${y(share).toFixed(1)}`).join("")} />`)}
  </svg><div class="legend">${drawn.map((row, place) => html`<span key=${place}><i class="ink ${ink(place)}"></i>${row.scenario}</span>`)}</div></figure>`;
}

const quoted = (text) => (/^[\w.,@/-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);
const command = (asked) =>
  ["corral simulate", asked.workload === "synthetic" && `--synthetic ${asked.seed}`, asked.workers && `--workers ${quoted(asked.workers)}`, asked.add && `--add ${quoted(asked.add)}`,
    asked.load !== 1 && `--load ${asked.load}`, asked.policy && `--policy ${asked.policy}`, asked.fail && "--fail"].filter(Boolean).join(" ");

const HOW = html`<${Empty} title="What would be, if …" hint="Choose changes, and the scheduler runs on what this cluster did, in virtual time. A day takes seconds; nothing of the cluster is touched." />`;

export default function Simulate() {
  const [told, setTold] = useState(null);
  const [isRunning, setRunning] = useState(false);
  // Made once: what was chosen stays chosen when an answer comes.
  const fields = useMemo(() => html`
          <div class="three">
            <${Select} name="workload" label="Workload" options=${[["recent", "what this cluster did"], ["synthetic", "5,000 made-up tasks"]]} value="recent" />
            <${Select} name="since_s" label="Of the last" options=${[[3600, "hour"], [21_600, "6 hours"], [86_400, "24 hours"], [604_800, "7 days"]]} value="3600" hint="as far as it is remembered" />
            <${Field} name="add" label="With these workers added" placeholder="2x24GB" hint="how many, and memory for models" />
            <${Field} name="workers" label="On these workers instead" placeholder="6x24GB,1x80GB@2" hint="@2 is twice as fast" />
            <${Select} name="load" label="So much work" options=${LOADS} value="1" />
            <${Select} name="policy" label="Policy" options=${POLICIES} value="" />
          </div>
          <${Field} name="fail" type="checkbox" label="Each worker is down once, for 5 minutes" />`, []);
  const run = async (values) => {
    const asked = {
      workload: values.workload, load: Number(values.load), fail: values.fail,
      ...(values.workload === "synthetic" ? { seed: 1, policy: "smith" } : { since_s: Number(values.since_s) }),
      ...Object.fromEntries(["workers", "add", "policy"].filter((name) => values[name]).map((name) => [name, values[name].trim()])),
    };
    setRunning(true);
    const { scenarios } = await post("/cluster/simulate", asked).finally(() => setRunning(false));
    setTold({ asked, scenarios: scenarios.map((row) => ({ ...row, scenario: row.scenario.replace("worker(s)", "workers") })) });
  };
  if (!may("operate")) {
    return html`<${Page} title="Simulate"><${Card}><${Empty} title="Your key may only look" hint="With a key that may operate, from here or from a terminal:"><${Command}>corral simulate --add 2x24GB</${Command}></${Empty}></${Card}></${Page}>`;
  }
  const rows = told?.scenarios ?? [];
  return html`<${Page} title="Simulate" lead="The same scheduler in virtual time, with other workers, more work or another policy.">
    <div class="stack">
      <${Card} title="Changes">
        <${Form} action="Simulate" onSubmit=${run}>
          ${fields}
        </${Form}>
      </${Card}>
      ${isRunning && html`<p class="hint" role="status">It runs beside the manager, at the lowest rank; two minutes at most.</p>`}
      ${!told && html`<${Card}>${HOW}</${Card}>`}
      ${told && html`
        <${Card} title="Compared"><div class="scenarios">${PANELS.map(([title, field, format]) => html`<${Bars} key=${field} ...${{ title, field, format, rows }} />`)}</div></${Card}>
        <${Card} title="Tasks that had ended after …"><${Curves} rows=${rows} /></${Card}>
        <${Card} title="Figures"><${Table} label="Scenarios" rows=${rows} id=${(row) => row.scenario} columns=${COLUMNS} /></${Card}>
        <${Card} title="The same from a terminal"><${Command}>${command(told.asked)}</${Command}></${Card}>`}
    </div>
  </${Page}>`;
}
