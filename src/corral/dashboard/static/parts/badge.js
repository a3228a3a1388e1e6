// A state as a word with a sign of its own: never by colour alone.
//
//   <${Badge} state="running" />            known states have their look
//   <${Badge} state="x" look="bad">x</${Badge}>  others say it: good busy wait warn bad off
import { html } from "../core/dom.js";
import { words } from "../core/format.js";

const LOOKS = {
  good: "completed online ready idle healthy operational valid resolved loaded closed available ok",
  busy: "running busy assigned loading starting pulling active",
  wait: "queued waiting pending registered scheduled info acknowledged held paused scheduled",
  warn: "warning degraded draining cordoned stopping timed_out unwell expired suspect quarantined half_open restarting",
  bad: "failed error critical offline lost dead revoked unhealthy crashed open",
  off: "cancelled stopped removed disabled left unloaded",
};
const SIGNS = { good: "●", busy: "◐", wait: "○", warn: "▲", bad: "✕", off: "–" };
const BY_STATE = Object.fromEntries(
  Object.entries(LOOKS).flatMap(([look, states]) => states.split(" ").map((state) => [state, look])),
);

export const lookOf = (state) => BY_STATE[state] ?? "wait";

export function Badge({ state, look = lookOf(state), children, title }) {
  return html`<span class="badge ${look}" title=${title}
    ><span class="sign" aria-hidden="true">${SIGNS[look]}</span>${children ?? words(state)}</span
  >`;
}

// A label or anything else that is just a word.
export const Chip = ({ children, title }) => html`<span class="chip" title=${title}>${children}</span>`;

export const Labels = ({ labels }) =>
  html`${Object.entries(labels ?? {}).map(([name, value]) => html`<${Chip} key=${name}>${name}=${value}</${Chip}> `)}`;
