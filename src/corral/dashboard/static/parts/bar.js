// Small pictures of numbers: a bar for a share, a line for a row of values.
import { html } from "../core/dom.js";
import { percent } from "../core/format.js";

const lookOf = (share) => (share >= 0.95 ? "bad" : share >= 0.8 ? "warn" : "");

// `share` is 0 to 1; `text` stands beside it. With `plain`, a full bar is no warning.
export function Bar({ share, text, label, plain = false }) {
  const known = share !== null && share !== undefined;
  const width = known ? Math.min(1, Math.max(0, share)) * 100 : 0;
  const told = text ?? percent(known ? share * 100 : null);
  return html`
    <span class="bar ${known && !plain ? lookOf(share) : ""}">
      <span class="track" role="meter" aria-label=${label} aria-valuemin="0" aria-valuemax="100"
        aria-valuenow=${Math.round(width)} aria-valuetext=${told}>
        <span class="fill" style=${{ width: `${width}%` }}></span>
      </span>
      <span class="told">${told}</span>
    </span>
  `;
}

// `values` may have nulls: gaps. Highest is `top`, or the highest value.
export function Sparkline({ values, top, label, width = 96, height = 24 }) {
  const known = (values ?? []).filter((value) => value !== null);
  const most = top ?? Math.max(1e-9, ...known);
  const step = width / Math.max(1, (values?.length ?? 1) - 1);
  let path = "";
  let isPen = false;
  (values ?? []).forEach((value, place) => {
    if (value === null) {
      isPen = false;
      return;
    }
    const y = height - 2 - (Math.min(value, most) / most) * (height - 4);
    path += `${isPen ? "L" : "M"}${(place * step).toFixed(1)} ${y.toFixed(1)}`;
    isPen = true;
  });
  return html`<svg class="spark" width=${width} height=${height} viewBox="0 0 ${width} ${height}"
    role="img" aria-label=${label}><path d=${path} /></svg>`;
}
