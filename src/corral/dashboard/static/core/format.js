// Numbers and times as people read them.
const NUMBER = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const MOMENT = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
});

export const NONE = "–";
const isNone = (value) => value === null || value === undefined || Number.isNaN(value);

export const count = (value) => (isNone(value) ? NONE : NUMBER.format(value));
export const short = (value) => (isNone(value) ? NONE : SHORT.format(value));
export const percent = (value, digits = 0) => (isNone(value) ? NONE : `${value.toFixed(digits)} %`);

function scaled(value, units, step) {
  if (isNone(value)) return NONE;
  let place = 0;
  // Not "1000 MB" where "1 GB" would do.
  while (Math.abs(value) >= 1000 && place < units.length - 1) {
    value /= step;
    place += 1;
  }
  const digits = Math.abs(value) >= 100 || Number.isInteger(value) ? 0 : 1;
  return `${value.toFixed(digits)} ${units[place]}`;
}

export const bytes = (value) => scaled(value, ["B", "KB", "MB", "GB", "TB", "PB"], 1024);
export const megabytes = (value) => scaled(value, ["MB", "GB", "TB", "PB"], 1024);
export const rate = (value) => (isNone(value) ? NONE : `${bytes(value)}/s`);

// A length of time: "240 ms", "3.2 s", "4 min 10 s", "2 h 5 min", "3 d 4 h".
export function duration(seconds) {
  if (isNone(seconds)) return NONE;
  if (seconds < 0.0005) return "0 s";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const whole = Math.round(seconds);
  const pair = (a, first, b, second) => (b ? `${a} ${first} ${b} ${second}` : `${a} ${first}`);
  if (whole < 3600) return pair(Math.floor(whole / 60), "min", whole % 60, "s");
  if (whole < 86_400) return pair(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return pair(Math.floor(whole / 86_400), "d", Math.floor((whole % 86_400) / 3600), "h");
}

// The same in one unit, where there is little room.
export function span(seconds) {
  const [value, unit] = seconds < 60 ? [seconds, "s"] : seconds < 3600 ? [seconds / 60, "min"] : seconds < 86_400 ? [seconds / 3600, "h"] : [seconds / 86_400, "d"];
  return `${Number(value.toFixed(1))} ${unit}`;
}

// A moment in full, in the reader's own zone.
export const moment = (at) => (at ? MOMENT.format(new Date(at)) : NONE);

// "just now", "40 s ago", "in 5 min".
export function ago(at, now = Date.now()) {
  if (!at) return NONE;
  const passed = (now - new Date(at)) / 1000;
  const size = Math.abs(passed);
  if (size < 5) return passed < -1 ? "in a moment" : "just now";
  const [value, unit] =
    size < 60 ? [size, "s"] : size < 3600 ? [size / 60, "min"] : size < 86_400 ? [size / 3600, "h"] : [size / 86_400, "d"];
  const words = `${Math.floor(value)} ${unit}`;
  return passed < 0 ? `in ${words}` : `${words} ago`;
}

// The first of an id, enough to tell it from others on a screen.
export const brief = (id, size = 8) => (id && id.length > size + 2 ? `${id.slice(0, size)}…` : id ?? NONE);

// A word of the API for people: "timed_out" is "timed out".
export const words = (text) => (text ?? "").replaceAll("_", " ");
