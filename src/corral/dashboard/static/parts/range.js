// The time a page looks at: in its address, so that a reload or a sent link keeps it.
import { html } from "../core/dom.js";
import { setQuery } from "../core/router.js";
import { Choice } from "./page.js";

export const RANGES = ["1h", "24h", "7d", "30d"];
export const rangeOf = (query, usual = "1h") => (RANGES.includes(query.range) ? query.range : usual);

export const Range = ({ value }) => html`
  <${Choice} label="Time range" value=${value} options=${RANGES} onChange=${(range) => setQuery({ range })} />
`;

// How often a plot over this time is worth drawing anew, in seconds.
export const REDRAW = { "1h": 15, "24h": 60, "7d": 300, "30d": 900 };
