// Text to take along: a button that copies, a command with one beside it, and JSON.
import { html, useState } from "../core/dom.js";
import { toast } from "./toast.js";

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without TLS a browser has no clipboard for us; the old way still does.
    const box = document.createElement("textarea");
    box.value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(box);
    box.select();
    const isDone = document.execCommand("copy");
    box.remove();
    return isDone;
  }
}

export function Copy({ text, label = "Copy" }) {
  const [isDone, setDone] = useState(false);
  const press = async () => {
    if (!(await copy(text))) return toast("The browser did not allow it: select the text instead.", "bad");
    setDone(true);
    setTimeout(() => setDone(false), 2000);
  };
  return html`<button type="button" class="small" onClick=${press}>${isDone ? "Copied" : label}</button>`;
}

// A command of the shell, or any line that is copied whole.
export const Command = ({ children: text }) => html`
  <div class="command"><pre><code>${text}</code></pre><${Copy} text=${String(text)} /></div>
`;

const MOST = 20_000;

export const pretty = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

// Any JSON value as people read it; what is very long is cut.
export function Json({ value, label }) {
  const [isAll, setAll] = useState(false);
  const text = pretty(value) ?? "";
  const isCut = text.length > MOST && !isAll;
  return html`
    <div class="json">
      ${isCut && html`<div class="row"><button class="small" onClick=${() => setAll(true)}>Show all ${Math.round(text.length / 1000)} thousand characters</button></div>`}
      <pre tabindex="0" role="region" aria-label="${label} as JSON"><code>${isCut ? `${text.slice(0, MOST)}…` : text}</code></pre>
    </div>
  `;
}
