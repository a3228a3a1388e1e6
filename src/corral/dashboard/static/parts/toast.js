// What was done, or why not, told in a corner. `act` is how buttons do things.
import { html, signal } from "../core/dom.js";

const notes = signal([]);
let last = 0;

export function toast(text, look = "good") {
  const note = { id: ++last, text, look };
  notes.value = [...notes.value.slice(-3), note];
  setTimeout(() => drop(note.id), look === "bad" ? 12_000 : 5000);
}

const drop = (id) => (notes.value = notes.value.filter((note) => note.id !== id));

// Do something and say how it went; true when it went well.
export async function act(promise, done) {
  try {
    await promise;
    if (done) toast(done);
    return true;
  } catch (error) {
    toast(error.message, "bad");
    return false;
  }
}

export const Toasts = () => html`
  <div class="toasts" role="status" aria-live="polite">
    ${notes.value.map(
      (note) => html`<div class="toast ${note.look}" key=${note.id}>
        <span>${note.text}</span>
        <button class="plain" aria-label="Dismiss" onClick=${() => drop(note.id)}>✕</button>
      </div>`,
    )}
  </div>
`;
