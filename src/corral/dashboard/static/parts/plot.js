// A plot over time.
//
//   <${Plot} title="CPU" times=${[epoch seconds]} series=${[{label, values, colour: "c1"}]}
//     format=${percent} range=${[0, 100]} height=${180} isArea />
//
// A value that is null is a gap. Below it stands what each line is and has, at the pointer
// or last; the same is told to those who cannot see it.
import { html, useEffect, useRef, useState } from "../core/dom.js";
import { isDark, colour } from "../core/theme.js";
import { count, NONE } from "../core/format.js";
import uPlot from "../vendor/uplot.js";

export const COLOURS = ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"];
export const epochs = (times) => times.map((at) => Date.parse(at) / 1000);

const lastKnown = (values) => {
  for (let i = values.length - 1; i >= 0; i--) if (values[i] !== null && values[i] !== undefined) return values[i];
  return null;
};

function options(title, series, format, range, height, isArea, onPoint) {
  const line = colour("line");
  const faint = colour("faint");
  const axis = { stroke: faint, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  return {
    width: 300,
    height,
    padding: [8, 8, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false }, sync: { key: "corral" } },
    scales: { x: { time: true }, y: { range: (_, low, high) => (range ? range : [Math.min(0, low ?? 0), (high ?? 0) > 0 ? high * 1.1 : 1]) } },
    axes: [
      { ...axis, grid: { show: false }, space: 60 },
      { ...axis, size: 58, space: 34, values: (_, ticks) => ticks.map((tick) => format(tick)) },
    ],
    series: [
      {},
      ...series.map((one, i) => {
        const ink = colour(one.colour ?? COLOURS[i % COLOURS.length]);
        const hasFew = one.values.filter((value) => value !== null).length < 2;
        return {
          label: one.label,
          stroke: ink,
          width: 1.6,
          dash: one.isDashed ? [5, 4] : undefined,
          fill: isArea ? `${ink}22` : undefined,
          points: { show: hasFew, size: 5, fill: ink },
          paths: one.isSteps ? uPlot.paths.stepped({ align: 1 }) : undefined,
        };
      }),
    ],
    hooks: { setCursor: [(plot) => onPoint(plot.cursor.idx ?? null)] },
  };
}

export function Plot({ title, times, series, format = count, range, height = 170, isArea = false }) {
  const box = useRef();
  const made = useRef();
  const [at, setAt] = useState(null);
  const shape = JSON.stringify([series.map((one) => [one.label, one.colour]), height, isArea, range, isDark.value]);

  useEffect(() => {
    const frame = box.current;
    const plot = new uPlot(options(title, series, format, range, height, isArea, setAt), [times, ...series.map((one) => one.values)], frame);
    made.current = plot;
    const fit = () => frame.clientWidth && plot.setSize({ width: frame.clientWidth, height });
    const watch = new ResizeObserver(fit);
    watch.observe(frame);
    fit();
    return () => {
      watch.disconnect();
      plot.destroy();
    };
  }, [shape]);
  useEffect(() => {
    made.current?.setData([times, ...series.map((one) => one.values)]);
  }, [times, series]);

  const value = (one) => (at !== null && at < one.values.length ? one.values[at] : lastKnown(one.values));
  const isEmpty = series.every((one) => one.values.every((found) => found === null));
  const told = series.map((one) => `${one.label}: ${told1(value(one), format)}`).join(", ");
  return html`
    <figure class="plot">
      <div class="canvas" ref=${box} role="img" aria-label="${title}. ${isEmpty ? "No readings in this time" : `Last: ${told}`}"></div>
      ${isEmpty && html`<p class="none">No readings in this time</p>`}
      <figcaption>
        ${series.map((one, i) => html`<span key=${one.label}><i class="ink ${one.colour ?? COLOURS[i % COLOURS.length]}"></i>${one.label} <b>${told1(value(one), format)}</b></span>`)}
        ${at !== null && times[at] && html`<span class="when">${new Date(times[at] * 1000).toLocaleString()}</span>`}
      </figcaption>
    </figure>
  `;
}

const told1 = (value, format) => (value === null || value === undefined ? NONE : format(value));
