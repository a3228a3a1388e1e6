// Fields with their labels, hints and faults, and a form that shows what the API refuses.
//
//   <${Form} onSubmit=${async (values) => {...}} action="Create">fields</${Form}>
//   <${Field} name="ttl_s" label="Good for" hint="seconds" type="number" />
//   <${Select} name="role" label="Role" options=${["read", ["admin", "Administrator"]]} />
// `values` has every field by its name: numbers for type="number", booleans for checkboxes,
// undefined for what was left empty.
import { html, useState, useMemo, newId } from "../core/dom.js";

const Frame = ({ id, label, hint, children }) => html`
  <div class="field">
    <label for=${id}>${label}</label>
    ${children}
    ${hint && html`<p class="hint" id="${id}-hint">${hint}</p>`}
  </div>
`;

export function Field({ label, hint, multiline, ...more }) {
  const id = useMemo(() => newId("field"), []);
  const about = hint ? `${id}-hint` : undefined;
  if (more.type === "checkbox") {
    return html`<div class="field check">
      <input id=${id} aria-describedby=${about} ...${more} /><label for=${id}>${label}</label>
      ${hint && html`<p class="hint" id="${id}-hint">${hint}</p>`}
    </div>`;
  }
  return html`<${Frame} ...${{ id, label, hint }}>
    ${multiline
      ? html`<textarea id=${id} aria-describedby=${about} spellcheck="false" ...${more}></textarea>`
      : html`<input id=${id} aria-describedby=${about} autocomplete="off" ...${more} />`}
  </${Frame}>`;
}

export function Select({ label, hint, options, ...more }) {
  const id = useMemo(() => newId("field"), []);
  const pairs = options.map((one) => (Array.isArray(one) ? one : [one, one]));
  return html`<${Frame} ...${{ id, label, hint }}>
    <select id=${id} aria-describedby=${hint ? `${id}-hint` : undefined} ...${more}>
      ${pairs.map(([value, text]) => html`<option key=${value} value=${value} selected=${String(more.value ?? "") === String(value)}>${text}</option>`)}
    </select>
  </${Frame}>`;
}

export function readForm(form) {
  const values = {};
  for (const field of form.elements) {
    if (!field.name || field.disabled) continue;
    if (field.type === "checkbox") values[field.name] = field.checked;
    else if (field.value === "") values[field.name] = undefined;
    else values[field.name] = field.type === "number" ? Number(field.value) : field.value;
  }
  return values;
}

export function Form({ onSubmit, action = "Save", children, onCancel }) {
  const [fault, setFault] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setFault(null);
    try {
      await onSubmit(readForm(event.target), event.target);
    } catch (error) {
      setFault(error);
      const field = error.details?.field && event.target.elements[error.details.field];
      field?.focus?.();
    }
    setBusy(false);
  };
  return html`
    <form onSubmit=${submit} aria-busy=${isBusy}>
      ${children}
      ${fault && html`<p class="fault" role="alert">${fault.message}</p>`}
      <div class="actions">
        ${onCancel && html`<button type="button" onClick=${onCancel}>Cancel</button>`}
        <button class="main" type="submit" disabled=${isBusy}>${action}</button>
      </div>
    </form>
  `;
}
