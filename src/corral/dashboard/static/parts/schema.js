// A form made from a JSON schema. The value is the owner's; a fault of the API stands at
// the field it names, or at the nearest one around it.
//
//   <${SchemaForm} schema=${schema} value=${value} onChange=${f} fault=${{path, message}} path="parameters" />
import { html, useEffect, useMemo, useState, newId } from "../core/dom.js";
import { fieldOf, firstValue, limits, titleOf } from "../core/schema.js";

const pathOf = (path, name) => (typeof name === "number" ? `${path}[${name}]` : `${path}.${name}`);

// Does the fault belong to this field, and to none inside it?
const isHere = (fault, path, isLeaf) => fault && (fault.path === path || (isLeaf && fault.path?.startsWith(path) && /^[.[]/.test(fault.path.slice(path.length))));

function Frame({ id, title, isRequired, about, wrong, children, isCheck }) {
  const label = html`<label for=${id}>${title}${isRequired ? html`<span class="must" title="needed" aria-hidden="true"> *</span>` : ""}</label>`;
  return html`<div class="field ${isCheck ? "check" : ""}">
    ${isCheck ? html`${children}${label}` : html`${label}${children}`}
    ${about && html`<p class="hint" id="${id}-hint">${about}</p>`}
    ${wrong && html`<p class="wrong" id="${id}-wrong" role="alert">${wrong}</p>`}
  </div>`;
}

export function JsonField({ id, value, onChange, rows = 4, ...more }) {
  const [text, setText] = useState(value === undefined ? "" : JSON.stringify(value, null, 2));
  const [wrong, setWrong] = useState(null);
  const type = (event) => {
    const typed = event.target.value;
    setText(typed);
    try {
      const read = typed.trim() ? JSON.parse(typed) : undefined;
      setWrong(null);
      event.target.setCustomValidity("");
      onChange(read);
    } catch (error) {
      setWrong(error.message);
      event.target.setCustomValidity(`This is not JSON: ${error.message}`);
    }
  };
  return html`<textarea id=${id} rows=${rows} spellcheck="false" value=${text} onInput=${type} aria-invalid=${wrong ? "true" : undefined} ...${more}></textarea>
    ${wrong && html`<p class="wrong">Not JSON: ${wrong}</p>`}`;
}

function Choice({ id, schema, value, onChange, isRequired, ...more }) {
  const options = schema.enum ?? [schema.const];
  const at = options.findIndex((one) => JSON.stringify(one) === JSON.stringify(value));
  return html`<select id=${id} onChange=${(event) => onChange(event.target.value === "" ? undefined : options[Number(event.target.value)])} required=${isRequired} ...${more}>
    ${(!isRequired || at < 0) && html`<option value="" selected=${at < 0}>–</option>`}
    ${options.map((one, place) => html`<option key=${place} value=${place} selected=${place === at}>${typeof one === "string" ? one : JSON.stringify(one)}</option>`)}
  </select>`;
}

const TYPES = { "date-time": "text", date: "date", time: "time", email: "email", uri: "url", password: "password" };

function Leaf({ kind, schema, value, onChange, id, isRequired, ...more }) {
  if (kind === "choice") return html`<${Choice} ...${{ id, schema, value, onChange, isRequired, ...more }} />`;
  if (kind === "boolean") return html`<input id=${id} type="checkbox" checked=${value === true} onChange=${(event) => onChange(event.target.checked)} ...${more} />`;
  if (kind === "number") {
    const { minimum: min, maximum: max, multipleOf } = schema;
    const step = schema.type === "integer" || [schema.type].flat().includes("integer") ? multipleOf ?? 1 : multipleOf ?? "any";
    const type = ({ target }) => onChange(target.value === "" ? undefined : Number(target.value));
    return html`<input id=${id} type="number" ...${{ min, max, step }} value=${value ?? ""} required=${isRequired} onInput=${type} ...${more} />`;
  }
  if (kind === "text") {
    const type = ({ target }) => onChange(target.value === "" && !(isRequired && schema.minLength === undefined) ? undefined : target.value);
    const { minLength: minlength, maxLength: maxlength } = schema;
    const isLong = maxlength > 200 || schema.format === "textarea" || /prompt|text|content|code/.test(id);
    return isLong
      ? html`<textarea id=${id} class="prose" rows="3" ...${{ minlength, maxlength }} value=${value ?? ""} required=${isRequired && minlength > 0} onInput=${type} ...${more}></textarea>`
      : html`<input id=${id} type=${TYPES[schema.format] ?? "text"} autocomplete="off" ...${{ minlength, maxlength }} value=${value ?? ""} required=${isRequired && minlength > 0} onInput=${type} ...${more} />`;
  }
  return html`<${JsonField} ...${{ id, value, onChange, ...more }} />`;
}

function List({ schema, root, value, onChange, path, fault }) {
  const items = Array.isArray(value) ? value : [];
  const set = (place, one) => onChange(items.map((old, i) => (i === place ? one : old)));
  const add = () => onChange([...items, firstValue(schema.items, root) ?? blank(schema.items, root)]);
  return html`
    ${items.map((one, place) => html`<div class="list-item" key=${place}>
      <${Node} schema=${schema.items} root=${root} value=${one} onChange=${(changed) => set(place, changed ?? blank(schema.items, root))} path=${pathOf(path, place)}
        title=${`${place + 1}.`} fault=${fault} isRequired />
      <button type="button" class="small" aria-label="Remove number ${place + 1}" onClick=${() => onChange(items.filter((_, i) => i !== place))}>Remove</button>
    </div>`)}
    <button type="button" class="small" disabled=${items.length >= (schema.maxItems ?? Infinity)} onClick=${add}>Add${items.length ? " another" : " one"}</button>
  `;
}

const blank = (schema, root) => ({ text: "", number: 0, boolean: false, list: [], group: {} })[fieldOf(schema, root).kind] ?? null;

function Group({ schema, root, value, onChange, path, fault }) {
  const inside = value && typeof value === "object" && !Array.isArray(value) ? value : {};
  const must = new Set(schema.required ?? []);
  const set = (name, one) => {
    const { [name]: _, ...rest } = inside;
    onChange(one === undefined ? rest : { ...inside, [name]: one });
  };
  // What is needed stands first.
  const names = Object.keys(schema.properties).sort((a, b) => must.has(b) - must.has(a));
  return names.map((name) => html`<${Node} key=${name} schema=${schema.properties[name]} root=${root} value=${inside[name]} onChange=${(one) => set(name, one)}
    path=${pathOf(path, name)} name=${name} fault=${fault} isRequired=${must.has(name)} />`);
}

function Node({ schema, root, value, onChange, path, name, title, fault, isRequired }) {
  const field = fieldOf(schema, root);
  const id = useMemo(() => newId(name ?? "item"), []);
  const shown = title ?? titleOf(name, field.schema);
  const isLeaf = field.kind !== "group" && field.kind !== "list";
  const wrong = isHere(fault, path, isLeaf) ? fault.message : null;
  const about = [field.schema.description, limits(field.schema)].filter(Boolean).join(" · ");
  useEffect(() => {
    if (wrong) document.getElementById(id)?.scrollIntoView?.({ block: "center" });
  }, [wrong]);
  const told = [about && `${id}-hint`, wrong && `${id}-wrong`].filter(Boolean).join(" ") || undefined;
  if (isLeaf) {
    return html`<${Frame} ...${{ id, title: shown, isRequired, about, wrong }} isCheck=${field.kind === "boolean"}>
      <${Leaf} kind=${field.kind} schema=${field.schema} ...${{ id, value, onChange, isRequired }} data-path=${path} aria-describedby=${told} aria-invalid=${wrong ? "true" : undefined} />
    </${Frame}>`;
  }
  const Inside = field.kind === "list" ? List : Group;
  return html`<fieldset id=${id} aria-describedby=${told}>
    <legend>${shown}${isRequired ? html`<span class="must" aria-hidden="true"> *</span>` : ""}</legend>
    ${about && html`<p class="hint" id="${id}-hint">${about}</p>`}
    ${wrong && html`<p class="wrong" id="${id}-wrong" role="alert">${wrong}</p>`}
    <${Inside} schema=${field.schema} ...${{ root, value, onChange, path, fault }} />
  </fieldset>`;
}

export function SchemaForm({ schema, value, onChange, fault, path }) {
  const field = fieldOf(schema, schema);
  const wrong = fault?.path === path ? fault.message : null;
  if (field.kind === "group") {
    return html`<div class="schema">${field.schema.description && html`<p class="hint">${field.schema.description}</p>`}
      ${wrong && html`<p class="wrong" role="alert">${wrong}</p>`}
      <${Group} schema=${field.schema} root=${schema} ...${{ value, onChange, path, fault }} /></div>`;
  }
  return html`<div class="schema"><${Node} schema=${schema} root=${schema} ...${{ value, onChange, path, fault }} title=${field.schema.title ?? "Input"} isRequired /></div>`;
}
