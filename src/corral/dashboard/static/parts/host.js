// The name of a machine that is there, as a link to it; its id until the name is known.
import { html, signal, useEffect } from "../core/dom.js";
import { get, part } from "../core/api.js";
import { Link } from "../core/router.js";

const names = signal(new Map());
const asked = new Set();
const MOST = 50;

function ask(id) {
  if (asked.has(id) || asked.size >= MOST) return;
  asked.add(id);
  get(`/nodes/${part(id)}`)
    .then((node) => (names.value = new Map(names.value).set(id, node.hostname)))
    .catch(() => asked.delete(id));
}

export function Host({ id }) {
  useEffect(() => ask(id), [id]);
  return html`<${Link} to=${`/nodes/${part(id)}`}>${names.value.get(id) ?? id}</${Link}>`;
}
