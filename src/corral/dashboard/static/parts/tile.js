// Small things several pages have: buttons of a row, and a dialog around a form.
import { html } from "../core/dom.js";
import { openDialog } from "./dialog.js";
import { Form } from "./form.js";

const openMenu = (of, actions) =>
  openDialog(
    ({ close }) => html`<div class="menu">${actions.map(([word, act, look = ""]) => html`<button key=${word} class=${look} onClick=${() => (close(), act())}>${word}</button>`)}
      <button onClick=${() => close()}>Close</button></div>`,
    { title: of.charAt(0).toUpperCase() + of.slice(1) },
  );

// Buttons in a cell: [[word, act, look]], those that are false left out. On a phone there
// is one that opens the others.
export function RowActions({ of, actions }) {
  const some = actions.filter(Boolean);
  const isMany = some.length > 1;
  return html`<span class="row-actions ${isMany ? "many" : ""}">
    ${some.map(([word, act, look = ""]) => html`<button key=${word} class="small ${look}" aria-label="${word} ${of}" onClick=${act}>${word}</button>`)}
    ${isMany && html`<button class="small opens-menu" aria-label="What to do with ${of}" aria-haspopup="dialog" onClick=${() => openMenu(of, some)}>•••</button>`}
  </span>`;
}

// Open a form over the page; resolves to what `send` gave, or to undefined.
export const openForm = ({ title, action, send, Fields }) =>
  openDialog(
    ({ close }) => html`<${Form} action=${action} onCancel=${() => close()} onSubmit=${async (values, form) => close((await send(values, form)) ?? true)}><${Fields} /></${Form}>`,
    { title },
  );
