// The frame of a page: its title (also the window's), what can be done, cards and figures.
import { html, useEffect } from "../core/dom.js";
import { Link } from "../core/router.js";

// `tab` is the window's title where it says more than the page's own.
// <${Page} title="Nodes" actions=${html`<button>..</button>`} back=${["/nodes", "Nodes"]}>
export function Page({ title, tab = title, lead, actions, back, children }) {
  useEffect(() => {
    document.title = `${tab} · Corral`;
  }, [tab]);
  return html`
    <header class="page-head">
      <div>
        ${back && html`<p class="back"><${Link} to=${back[0]}>‹ ${back[1]}</${Link}></p>`}
        <h1 tabindex="-1">${title}</h1>
        ${lead && html`<p class="lead">${lead}</p>`}
      </div>
      ${actions && html`<div class="actions">${actions}</div>`}
    </header>
    ${children}
  `;
}

export const Card = ({ title, aside, children, wide, id }) => html`
  <section class="card ${wide ? "wide" : ""}" aria-label=${title} id=${id}>
    ${title && html`<header><h2>${title}</h2>${aside && html`<div class="aside">${aside}</div>`}</header>`}
    ${children}
  </section>
`;

// A figure with its name; `to` makes it a link.
export const Figure = ({ name, value, note, to, look = "" }) => {
  const inside = html`<span class="name">${name}</span><span class="value">${value}</span>
    <span class="note">${note}</span>`;
  return to
    ? html`<${Link} to=${to} class="figure ${look}">${inside}</${Link}>`
    : html`<div class="figure ${look}">${inside}</div>`;
};

// <${Facts} rows=${[["Version", "1.2"], ...]} />: rows without a value are left out.
export const Facts = ({ rows }) => html`
  <dl class="facts">
    ${rows
      .filter((row) => row && row[1] !== null && row[1] !== undefined && row[1] !== "")
      .map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>
`;

// A choice of a few words: <${Choice} label="Range" value=${x} options=${["1h", "24h"]} onChange=${f} />
export const Choice = ({ label, value, options, onChange }) => html`
  <div class="choice" role="group" aria-label=${label}>
    ${options.map((one) => {
      const [word, text] = Array.isArray(one) ? one : [one, one];
      return html`<button key=${word} aria-pressed=${word === value} onClick=${() => onChange(word)}>${text}</button>`;
    })}
  </div>
`;
