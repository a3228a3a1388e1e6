// When a task waited, loaded its model and ran: one line for each attempt, on one scale.
import { html } from "../core/dom.js";
import { duration, words } from "../core/format.js";
import { Badge } from "./badge.js";
import { now } from "./time.js";

const NAMES = { wait: "waiting", load: "loading", run: "running" };
const at = (text) => (text ? Date.parse(text) : null);

// [{attempt, outcome, spans: [{kind, from, to}]}] of the run the task is in; times in ms.
export function spansOf(task, until) {
  const tried = task.attempts.filter((one) => one.run === task.run);
  const isFirst = task.run === 1;
  let last = isFirst ? at(task.created_at) : null;
  const rows = tried.map((one) => {
    const end = at(one.finished_at);
    const begin = at(one.started_at) ?? end;
    const isLatest = one.attempt === task.attempt;
    const given = isLatest ? at(task.assigned_at) : null;
    const row = { attempt: one.attempt, outcome: one.outcome, worker: one.worker_id, spans: pieces(last ?? begin, given, begin, end) };
    last = end;
    return row;
  });
  if (tried.some((one) => one.attempt === task.attempt)) return rows;
  const end = at(task.completed_at) ?? until;
  const given = at(task.assigned_at);
  const begin = at(task.started_at) ?? end;
  const from = last ?? given ?? begin;
  rows.push({ attempt: Math.max(task.attempt, 1), outcome: task.status, worker: task.worker_id, spans: pieces(from, given, begin, end) });
  return rows;
}

function pieces(from, given, begin, end) {
  const middle = given !== null && given >= from && given <= begin ? given : begin;
  return [["wait", from, middle], ["load", middle, begin], ["run", begin, end]]
    .filter(([, a, b]) => b > a)
    .map(([kind, a, b]) => ({ kind, from: a, to: b }));
}

export function Timeline({ task }) {
  const rows = spansOf(task, now.value);
  const all = rows.flatMap((row) => row.spans);
  if (!all.length) return html`<p class="hint">Nothing to draw yet.</p>`;
  const first = Math.min(...all.map((span) => span.from));
  const last = Math.max(...all.map((span) => span.to), first + 1);
  const share = (ms) => `${(100 * (ms - first)) / (last - first)}%`;
  const sum = (kind) => all.filter((span) => span.kind === kind).reduce((total, span) => total + span.to - span.from, 0) / 1000;
  return html`
    <div class="timeline">
      <ol>
        ${rows.map((row) => html`<li key=${row.attempt}>
          <span class="who">Attempt ${row.attempt}</span>
          <span class="track" role="img" aria-label=${row.spans.map((span) => `${NAMES[span.kind]} ${duration((span.to - span.from) / 1000)}`).join(", ")}>
            ${row.spans.map((span) => html`<i key=${span.kind} class=${span.kind} title="${NAMES[span.kind]} ${duration((span.to - span.from) / 1000)}"
              style=${{ left: share(span.from), width: `max(2px, ${(100 * (span.to - span.from)) / (last - first)}%)` }}></i>`)}
          </span>
          <${Badge} state=${row.outcome}>${words(row.outcome)}</${Badge}>
        </li>`)}
      </ol>
      <div class="legend">
        ${Object.entries(NAMES).map(([kind, name]) => html`<span key=${kind}><i class="ink ${kind}"></i>${name} <b>${duration(sum(kind))}</b></span>`)}
        <span class="whole">in all <b>${duration((last - first) / 1000)}</b></span>
      </div>
    </div>
  `;
}
