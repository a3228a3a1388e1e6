// What stands where data should be: still loading, a fault, or nothing yet and what to do.
import { html } from "../core/dom.js";

// <${Empty} title="No nodes yet" hint="Make a token, then join a machine:" command="corral token create" />
export const Empty = ({ title, hint, command, children }) => html`
  <div class="empty">
    <p class="title">${title}</p>
    ${hint && html`<p>${hint}</p>`} ${command && html`<pre><code>${command}</code></pre>`} ${children}
  </div>
`;

export const Fault = ({ error, retry }) => html`
  <div class="fault" role="alert">
    <p>${error.message}</p>
    ${error.requestId && html`<p class="hint">request ${error.requestId}</p>`}
    ${retry && html`<button onClick=${retry}>Try again</button>`}
  </div>
`;

// Shows `children(data)` once there is data, with a fault above it when the last load failed.
export function Loaded({ from, children }) {
  const { data, error, isLoading, reload } = from;
  if (data === null && error) return html`<${Fault} error=${error} retry=${reload} />`;
  if (data === null) return isLoading ? html`<${Skeleton} />` : null;
  return html`${error && html`<${Fault} error=${error} retry=${reload} />`}${children(data)}`;
}

export const Skeleton = ({ lines = 4 }) => html`
  <div class="skeleton" role="status" aria-busy="true" aria-label="Loading">
    ${Array.from({ length: lines }, (_, i) => html`<div key=${i}></div>`)}
  </div>
`;
