// What is wrong, and what happened.
import { html } from "../core/dom.js";
import { may, part } from "../core/api.js";
import { useData } from "../core/live.js";
import { Link, setQuery } from "../core/router.js";
import { Badge } from "../parts/badge.js";
import { EventTable } from "../parts/event_table.js";
import { Card, Choice, Page } from "../parts/page.js";
import { acknowledge } from "../parts/reasons.js";
import { Empty, Loaded } from "../parts/state.js";
import { Table } from "../parts/table.js";
import { Ago } from "../parts/time.js";

const WORST = ["critical", "error", "warning", "info"];
const stateOf = (row) => (row.resolved_at ? "resolved" : row.acknowledged_at ? "acknowledged" : "open");

const columns = (reload) => [
  { name: "severity", title: "Severity", cell: (row) => html`<${Badge} state=${row.severity} />`, sort: (row) => WORST.indexOf(row.severity) },
  { name: "title", title: "What", isWide: true, cell: (row) => html`${row.title}${row.note ? html` <span class="hint">“${row.note}”</span>` : ""}`, sort: (row) => row.title },
  { name: "node", title: "Node", isExtra: true, cell: (row) => row.node_id && html`<${Link} to="/nodes/${part(row.node_id)}" class="mono">${row.node_id}</${Link}>` },
  { name: "raised", title: "Raised", isExtra: true, cell: (row) => html`<${Ago} at=${row.raised_at} />`, sort: (row) => row.raised_at },
  { name: "state", title: "State", isExtra: true, cell: (row) => html`<${Badge} state=${stateOf(row)} look=${{ open: "bad", acknowledged: "wait", resolved: "good" }[stateOf(row)]} title=${row.acknowledged_by ? `by ${row.acknowledged_by}` : ""} />`, sort: stateOf },
  {
    name: "act",
    title: html`<span class="hidden-text">Action</span>`,
    cell: (row) => stateOf(row) === "open" && may("operate") &&
      html`<button class="small" onClick=${async () => (await acknowledge(row.id, row.title)) && reload()}>Acknowledge</button>`,
  },
];

const ALERTS = ["alert", "alert_acknowledged", "alert_resolved", "gpu_alert"];

export default function Events({ query }) {
  const which = query.alerts === "all" ? "all" : "open";
  const severity = WORST.includes(query.severity) ? query.severity : "";
  const alerts = useData("/alerts", { query: { state: which, limit: 200 }, events: ALERTS, every: 20 });
  // Any event that is kept comes with a name of its own: look again after each.
  const isAll = query.tasks === "yes";
  const after = [...ALERTS, "node_status_changed", "worker_status_changed", ...(isAll ? ["tasks_changed"] : [])];
  const events = useData("/events", { query: { severity, tasks: isAll, limit: 500 }, events: after, every: 20 });
  return html`<${Page} title="Events and alerts">
    <div class="stack">
      <${Card} title="Alerts" aside=${html`<${Choice} label="Which alerts" value=${which} options=${[["open", "Open"], ["all", "All"]]} onChange=${(word) => setQuery({ alerts: word === "open" ? null : word })} />`}>
        <${Loaded} from=${alerts}>${(data) => html`<${Table} label="Alerts" rows=${data.alerts} id=${(row) => row.id} columns=${columns(alerts.reload)} sort="severity"
          empty=${html`<${Empty} title=${which === "open" ? "Nothing is wrong" : "There was no alert yet"} hint="Alerts come from rules over nodes, GPUs, workers and queues." />`} />`}</${Loaded}>
      </${Card}>
      <${Card} title="Events" aside=${html`
        <label><input type="checkbox" checked=${isAll} onChange=${() => setQuery({ tasks: isAll ? null : "yes" })} /> with those of tasks</label>
        <label>at least <select aria-label="Severity" value=${severity} onChange=${(event) => setQuery({ severity: event.target.value })}>
          <option value="" selected=${!severity}>any severity</option>
          ${["warning", "error", "critical"].map((word) => html`<option key=${word} value=${word} selected=${severity === word}>${word}</option>`)}
        </select></label>`}>
        <${Loaded} from=${events}>${(data) => html`<${EventTable} events=${data.events} key=${isAll} />`}</${Loaded}>
      </${Card}>
    </div>
  </${Page}>`;
}
