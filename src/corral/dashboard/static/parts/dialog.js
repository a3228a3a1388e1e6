// Dialogs over the page, with the browser's own: focus stays in, Escape closes.
//
//   await confirm({title, text, action: "Drain", isGrave: true})   → true or false
//   openDialog(({close}) => html`...`, {title})                    anything else
import { html, signal, useEffect, useRef, newId } from "../core/dom.js";

const shown = signal(null);

export function openDialog(Body, { title }) {
  return new Promise((resolve) => {
    const close = (value) => {
      shown.value = null;
      resolve(value);
    };
    shown.value = { Body, title, close, id: newId("dialog") };
  });
}

export const confirm = ({ title, text, action = "Do it", isGrave = false }) =>
  openDialog(
    ({ close }) => html`
      <p>${text}</p>
      <div class="actions">
        <button onClick=${() => close(false)}>Leave it</button>
        <button class=${isGrave ? "grave" : "main"} onClick=${() => close(true)}>${action}</button>
      </div>
    `,
    { title },
  ).then(Boolean);

export function Dialogs() {
  const box = useRef();
  const one = shown.value;
  useEffect(() => {
    if (one && !box.current.open) box.current.showModal();
  }, [one]);
  if (!one) return null;
  return html`
    <dialog ref=${box} key=${one.id} aria-labelledby=${one.id} onClose=${() => one.close()}
      onClick=${(event) => event.target === box.current && one.close()}>
      <div class="inside">
        <h2 id=${one.id}>${one.title}</h2>
        <${one.Body} close=${one.close} />
      </div>
    </dialog>
  `;
}
