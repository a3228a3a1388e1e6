// Small things several pages have: buttons of a row, and a dialog around a form.
import { html } from "../core/dom.js";
import { openDialog } from "./dialog.js";
import { Form } from "./form.js";

// Buttons in a cell: [[word, act, look]], those that are false left out.
export const RowActions = ({ of, actions }) => html`<span class="row-actions ${actions.filter(Boolean).length < 3 ? "few" : ""}">
  ${actions.filter(Boolean).map(([word, act, look = ""]) => html`<button key=${word} class="small ${look}" aria-label="${word} ${of}" onClick=${act}>${word}</button>`)}
</span>`;

// Open a form over the page; resolves to what `send` gave, or to undefined.
export const openForm = ({ title, action, send, Fields }) =>
  openDialog(
    ({ close }) => html`<${Form} action=${action} onCancel=${() => close()} onSubmit=${async (values, form) => close((await send(values, form)) ?? true)}><${Fields} /></${Form}>`,
    { title },
  );
