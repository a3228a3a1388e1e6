// A table for three rows or a hundred thousand: only what is seen is drawn.
//
//   <${Table} label="Nodes" rows=${rows} id=${(row) => row.node_id}
//     columns=${[
//       {name: "hostname", title: "Name", cell: (row) => ..., sort: (row) => row.hostname},
//       {name: "cpu", title: "CPU", cell: ..., isNumber: true, isExtra: true},  // not on phones
//       {name: "type", title: "Type", cell: ..., under: (row) => ...},  // a second line there
//       {name: "labels", title: "Labels", cell: ..., isRoomy: true},  // on wide screens alone
//       {name: "what", title: "What", cell: ..., isElastic: true},  // gets what others leave
//     ]}
//     to=${(row) => `/nodes/${row.node_id}`}      Enter or a click opens it
//     selected=${set} onSelect=${(set) => ...}    with boxes to choose rows
//     sort="hostname"  or "-cpu"                  how it begins; a click on a head changes it
//     onEnd=${loadMore} total=${n}                when the last rows are seen
//     empty=${html`<${Empty} .../>`} />
//
// Keys: up, down, page up, page down, home, end go through the rows; Enter opens, Space
// chooses, Shift+Space chooses up to here.
import { html, useState, useRef, useEffect, useMemo, useLayoutEffect } from "../core/dom.js";
import { go } from "../core/router.js";
import { isModest, isNarrow } from "../core/theme.js";

const ONE_LINE = 38;
const TWO_LINES = 56;
const AROUND = 12;
const FEW = 60;

const compare = (a, b) => {
  const isGap = (value) => value === null || value === undefined;
  if (isGap(a) || isGap(b)) return isGap(a) - isGap(b);
  return typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b;
};

function sorted(rows, columns, order) {
  const column = columns.find((one) => one.name === order.replace(/^-/, ""));
  if (!column?.sort) return rows;
  const keys = new Map(rows.map((row) => [row, column.sort(row)]));
  const way = order.startsWith("-") ? -1 : 1;
  return [...rows].sort((a, b) => way * compare(keys.get(a), keys.get(b)));
}

export function Table({ label, rows, id, columns: all, to, selected, onSelect, sort = "", onEnd, total, empty, height = 640 }) {
  const [order, setOrder] = useState(sort);
  const [view, setView] = useState({ top: 0, height });
  const [current, setCurrent] = useState(0);
  const box = useRef();
  const anchor = useRef(0);
  const wanted = useRef(null);
  // The row that is to have the focus may only be drawn with the next picture.
  const settle = () => {
    const found = wanted.current !== null && box.current?.querySelector(`tr[data-place="${wanted.current}"]`);
    if (!found) return;
    wanted.current = null;
    found.focus({ preventScroll: isLong });
  };
  useLayoutEffect(settle);
  const columns = all.filter((one) => !(one.isExtra && isNarrow.value) && !(one.isRoomy && isModest.value));
  const isTwo = isNarrow.value && columns.some((column) => column.under);
  const ROW = isTwo ? TWO_LINES : ONE_LINE;
  const shown = useMemo(() => sorted(rows, all, order), [rows, order, all.length]);
  const isLong = shown.length > FEW;
  const first = isLong ? Math.max(0, Math.floor(view.top / ROW) - AROUND) : 0;
  const last = isLong ? Math.min(shown.length, Math.ceil((view.top + view.height) / ROW) + AROUND) : shown.length;

  useLayoutEffect(() => {
    if (isLong && box.current) setView({ top: box.current.scrollTop, height: box.current.clientHeight });
  }, [isLong]);
  useEffect(() => {
    if (onEnd && last >= shown.length - AROUND) onEnd();
  }, [last, shown.length]);

  if (!rows.length) return empty ?? html`<p class="hint">Nothing here.</p>`;
  const at = Math.min(current, shown.length - 1);

  const focus = (place) => {
    const next = Math.max(0, Math.min(shown.length - 1, place));
    setCurrent(next);
    const frame = box.current;
    const head = frame.querySelector("thead").offsetHeight;
    if (isLong) {
      const y = next * ROW;
      if (y < frame.scrollTop) frame.scrollTop = y;
      else if (y + ROW + head > frame.scrollTop + frame.clientHeight) frame.scrollTop = y + ROW + head - frame.clientHeight;
      setView({ top: frame.scrollTop, height: frame.clientHeight });
    }
    wanted.current = next;
    settle();
  };
  const pick = (place, isRange) => {
    const next = new Set(selected);
    const key = id(shown[place]);
    if (isRange) {
      const [a, b] = [Math.min(anchor.current, place), Math.max(anchor.current, place)];
      for (let i = a; i <= b; i++) next.add(id(shown[i]));
    } else if (!next.delete(key)) next.add(key);
    anchor.current = place;
    onSelect(next);
  };
  const onKey = (event) => {
    const place = Number(event.target.closest("tr")?.dataset.place);
    if (Number.isNaN(place) || event.target.closest("button, a, input, select")) return;
    const page = Math.max(1, Math.floor(view.height / ROW) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -shown.length, End: shown.length };
    if (event.key in steps) focus(place + steps[event.key]);
    else if (event.key === "Enter" && to) go(to(shown[place]));
    else if (event.key === " " && onSelect) pick(place, event.shiftKey);
    else return;
    event.preventDefault();
  };
  const onClick = (event) => {
    const place = Number(event.target.closest("tbody tr")?.dataset.place);
    if (Number.isNaN(place) || event.target.closest("button, a, input, label, select")) return;
    if (getSelection()?.toString()) return;
    if (to) go(to(shown[place]));
  };
  const head = (column) => {
    if (!column.sort) return column.title;
    const way = order === column.name ? "ascending" : order === `-${column.name}` ? "descending" : null;
    const turn = () => setOrder(way === "ascending" ? `-${column.name}` : column.name);
    return html`<button class="plain" onClick=${turn}>${column.title}<span class="arrow" aria-hidden="true">${way ? (way === "ascending" ? "↑" : "↓") : ""}</span></button>`;
  };
  const isAll = onSelect && shown.length > 0 && shown.every((row) => selected.has(id(row)));
  const space = columns.length + (onSelect ? 1 : 0);

  return html`
    <div class="table-box ${isLong ? "long" : ""}" ref=${box} tabindex=${isLong ? "0" : undefined} role=${isLong ? "region" : undefined} aria-label=${isLong ? label : undefined}
      onScroll=${isLong ? (event) => setView({ top: event.target.scrollTop, height: event.target.clientHeight }) : undefined}>
      <table aria-label=${label} aria-rowcount=${(total ?? shown.length) + 1} onKeyDown=${onKey} onClick=${onClick} class="${to ? "opens" : ""} ${isTwo ? "two-lines" : ""}">
        <thead>
          <tr aria-rowindex="1">
            ${onSelect && html`<th class="pick" scope="col"><input type="checkbox" aria-label="Choose all" checked=${isAll}
              onChange=${() => onSelect(isAll ? new Set() : new Set(shown.map(id)))} /></th>`}
            ${columns.map((column) => html`<th key=${column.name} scope="col" class=${classOf(column)}
              aria-sort=${order === column.name ? "ascending" : order === `-${column.name}` ? "descending" : undefined}>${head(column)}</th>`)}
          </tr>
        </thead>
        <tbody>
          ${first > 0 && html`<tr class="space" aria-hidden="true"><td colspan=${space} style=${{ height: `${first * ROW}px` }}></td></tr>`}
          ${shown.slice(first, last).map((row, i) => {
            const place = first + i;
            const key = id(row);
            const isPicked = onSelect ? selected.has(key) : undefined;
            return html`<tr key=${key} data-place=${place} data-id=${key} aria-rowindex=${place + 2} tabindex=${place === at ? "0" : "-1"}
              aria-selected=${isPicked} class=${isPicked ? "picked" : ""} onFocus=${() => setCurrent(place)}>
              ${onSelect && html`<td class="pick"><input type="checkbox" tabindex="-1" aria-label="Choose ${key}" checked=${isPicked}
                onClick=${(event) => pick(place, event.shiftKey)} /></td>`}
              ${columns.map((column) => html`<td key=${column.name} class=${classOf(column)}>${column.cell(row)}${isTwo && column.under ? html`<div class="under">${column.under(row)}</div>` : ""}</td>`)}
            </tr>`;
          })}
          ${last < shown.length && html`<tr class="space" aria-hidden="true"><td colspan=${space} style=${{ height: `${(shown.length - last) * ROW}px` }}></td></tr>`}
        </tbody>
      </table>
    </div>
  `;
}

const classOf = (column) =>
  [column.isNumber && "number", column.isWide && "wide", column.isMain && "first", column.isElastic && "elastic"].filter(Boolean).join(" ");
