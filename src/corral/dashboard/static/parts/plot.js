// A plot over time.
//
//   <${Plot} title="CPU" times=${[epoch seconds]} series=${[{label, values, colour: "c1"}]}
//     format=${percent} range=${[0, 100]} height=${180} isArea />
//
// `axis` formats what stands at the axis, where `format` is too long for it.
// `isStacked` draws bars on one another, for amounts that add up; `isBinary` has lines at
// powers of two, for bytes.
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

// One line: the full moment stands below the plot, at the pointer.
const TIMES = [
  [86_400, "{D} {MMM}", null, null, null, null, null, null, 1],
  [60, "{HH}:{mm}", null, null, null, null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1],
];

const stepOf = (times) => (times.length > 1 ? times[1] - times[0] : 3600);

// What is drawn: for a stack each line is the sum of itself and all below it.
function drawn(times, series, isStacked) {
  if (!isStacked) return [times, ...series.map((one) => one.values)];
  const sums = times.map(() => 0);
  const tops = series.map((one) => one.values.map((value, i) => (sums[i] += value ?? 0)));
  return [times, ...tops.reverse()];
}

const POWERS = Array.from({ length: 50 }, (_, i) => 2 ** i);

function options({ series, axis: told, range, height, isArea, isStacked, isBinary }, onPoint) {
  const line = colour("line");
  const faint = colour("faint");
  const axis = { stroke: faint, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  return {
    width: 300,
    height,
    padding: [8, 22, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false }, sync: { key: "corral" } },
    scales: {
      // The last bar has room, too.
      x: { time: true, range: (plot, low, high) => (isStacked ? [low, high + stepOf(plot.data[0])] : [low, high]) },
      y: { range: (_, low, high) => (range ? range : [Math.min(0, low ?? 0), (high ?? 0) > 0 ? high * 1.1 : 1]) },
    },
    axes: [
      { ...axis, grid: { show: false }, space: 58, size: 26, values: TIMES },
      { ...axis, size: 58, space: 34, incrs: isBinary ? POWERS : undefined, values: (_, ticks) => ticks.map((tick) => told(tick)) },
    ],
    series: [
      {},
      ...(isStacked ? [...series].reverse() : series).map((one, i) => {
        const place = isStacked ? series.length - 1 - i : i;
        const ink = colour(one.colour ?? COLOURS[place % COLOURS.length]);
        const hasFew = one.values.filter((value) => value !== null).length < 2;
        return {
          label: one.label,
          stroke: ink,
          width: isStacked ? 0 : 1.6,
          dash: one.isDashed ? [5, 4] : undefined,
          fill: isStacked ? ink : isArea ? `${ink}22` : undefined,
          points: { show: hasFew && !isStacked, size: 5, fill: ink },
          paths: isStacked ? uPlot.paths.bars({ size: [0.7, 48], align: 1 }) : undefined,
        };
      }),
    ],
    hooks: { setCursor: [(plot) => onPoint(plot.cursor.idx ?? null)] },
  };
}

export function Plot({ title, times, series, format = count, axis = format, range, height = 170, isArea = false, isStacked = false, isBinary = false }) {
  const box = useRef();
  const made = useRef();
  const [at, setAt] = useState(null);
  const shape = JSON.stringify([series.map((one) => [one.label, one.colour]), height, isArea, isStacked, range, isDark.value]);

  useEffect(() => {
    const frame = box.current;
    const plot = new uPlot(options({ series, axis, range, height, isArea, isStacked, isBinary }, setAt), drawn(times, series, isStacked), frame);
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
    made.current?.setData(drawn(times, series, isStacked));
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
