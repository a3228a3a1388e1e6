// Line drawings for the navigation; they say nothing that a word beside them does not.
import { html } from "../core/dom.js";

const PATHS = {
  home: "M3 11l9-8 9 8M5 9.5V21h14V9.5M10 21v-6h4v6",
  node: "M4 4h16v7H4zM4 13h16v7H4zM8 7.5h.01M8 16.5h.01M12 7.5h5M12 16.5h5",
  worker: "M12 8a4 4 0 100 8 4 4 0 000-8zM12 2v3M12 19v3M2 12h3M19 12h3M4.9 4.9L7 7M17 17l2.1 2.1M4.9 19.1L7 17M17 7l2.1-2.1",
  bell: "M6 16V11a6 6 0 0112 0v5l2 2H4zM10 21h4",
  meter: "M4 20V12M10 20V4M16 20v-6M22 20H2",
  task: "M4 6l2 2 3-3M4 13l2 2 3-3M4 20l2 2 3-3M13 7h8M13 14h8M13 21h8",
  model: "M12 2l9 5v10l-9 5-9-5V7zM3 7l9 5 9-5M12 12v10",
  queue: "M4 5h16M4 10h16M4 15h10M4 20h6",
  dead: "M12 3l10 18H2zM12 10v5M12 18h.01",
  clock: "M12 3a9 9 0 100 18 9 9 0 000-18zM12 7v5l4 2",
  simulate: "M9 3h6M10 3v6L4 20h16L14 9V3M7 15h10",
  key: "M15 4a5 5 0 11-4.6 7L3 18v3h4l1-2h2l1-2 1-2M16 8h.01",
  plus: "M12 5v14M5 12h14",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  out: "M10 4H4v16h6M15 8l4 4-4 4M19 12H9",
  sun: "M12 8a4 4 0 100 8 4 4 0 000-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M5 19l1.4-1.4M17.6 6.4L19 5",
};

export const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d=${PATHS[name] ?? PATHS.more} /></svg>`;
