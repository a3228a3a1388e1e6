// Lines that come in: they stay at the end while one is there, and stand still otherwise.
import { html, useLayoutEffect, useRef, useState } from "../core/dom.js";
import { save } from "../core/api.js";
import { Choice } from "./page.js";
import { Copy } from "./copy.js";

const TIME = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

// {ref, onScroll} for a box that stays at its end, as `size` grows, while one is there.
export function useEnd(size) {
  const ref = useRef();
  const isDown = useRef(true);
  useLayoutEffect(() => {
    if (isDown.current && ref.current) ref.current.scrollTop = ref.current.scrollHeight;
  }, [size]);
  const onScroll = ({ target }) => (isDown.current = target.scrollHeight - target.scrollTop - target.clientHeight < 40);
  return { ref, onScroll };
}

export function Log({ lines, name, isLive, label = "Log" }) {
  const [attempt, setAttempt] = useState("all");
  const attempts = [...new Set(lines.map((line) => line.attempt))];
  const shown = attempt === "all" ? lines : lines.filter((line) => String(line.attempt) === attempt);
  const end = useEnd(shown.length);
  const text = () => shown.map((line) => `${new Date(line.at * 1000).toISOString()} ${line.text}`).join("\n");
  if (!lines.length) return html`<p class="hint">${isLive ? "Nothing printed yet; lines appear here as they come." : "It printed nothing."}</p>`;
  return html`
    <div class="filters">
      ${attempts.length > 1 && html`<${Choice} label="Attempt" value=${attempt} options=${[["all", "All"], ...attempts.map((one) => [String(one), `Attempt ${one}`])]} onChange=${setAttempt} />`}
      <${Copy} text=${text()} />
      <button class="small" onClick=${() => save(new Blob([`${text()}\n`], { type: "text/plain" }), `${name}.log`)}>Download</button>
    </div>
    <div class="log" ...${end} tabindex="0" role="log" aria-label=${label} aria-live="off">
      ${shown.map((line, place) => html`<div key=${place} data-stream=${line.stream}><time>${TIME.format(line.at * 1000)}</time><span>${line.text}</span></div>`)}
    </div>
  `;
}
