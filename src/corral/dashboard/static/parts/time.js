// Times that go on: "3 s ago" says so until it is "4 s ago"; the full moment on hover.
import { html, signal } from "../core/dom.js";
import { ago, duration, moment, NONE } from "../core/format.js";

export const now = signal(Date.now());
setInterval(() => !document.hidden && (now.value = Date.now()), 1000);

export const Ago = ({ at }) =>
  at ? html`<time datetime=${at} title=${moment(at)}>${ago(at, now.value)}</time>` : NONE;

// How long since, for what still goes on; until `end` once there is one.
export const Since = ({ at, end }) =>
  at ? html`<time>${duration(Math.max(0, ((end ? new Date(end) : now.value) - new Date(at)) / 1000))}</time>` : NONE;
