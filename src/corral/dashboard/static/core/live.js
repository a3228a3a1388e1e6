// What happens, as it happens: one WebSocket for the page, resumed after every loss.
//
//   connection.value   "off" | "connecting" | "live" | "lost"
//   listen(types, f)   f(event) for each event of these types; returns how to stop
//   onReset(f)         f() when what is shown must be loaded anew
//   useData(path, ...) what a page shows, loaded and kept up to date
import { signal, useState, useEffect, useRef, useCallback } from "./dom.js";
import { get, post, session } from "./api.js";

export const connection = signal("off");
// The last `cluster_summary`: queued_tasks, running_tasks, workers, nodes, ..._per_s.
export const summary = signal(null);

const hearers = new Set();
const resets = new Set();
const LONGEST_MS = 15_000;
const LATER_MS = 3000;
let socket = null;
let seq = null;
let tries = 0;
let timer = 0;
let isWanted = false;

export function listen(types, hear) {
  const wanted = typeof types === "string" ? [types] : types;
  const one = { wanted: wanted && new Set(wanted), hear };
  hearers.add(one);
  return () => hearers.delete(one);
}

export function onReset(act) {
  resets.add(act);
  return () => resets.delete(act);
}

export function start() {
  if (isWanted) return;
  isWanted = true;
  open();
}

export function stop() {
  isWanted = false;
  clearTimeout(timer);
  socket?.close();
  socket = null;
  seq = null;
  connection.value = "off";
}

async function open() {
  clearTimeout(timer);
  if (connection.value !== "lost") connection.value = "connecting";
  try {
    const { ticket } = await post("/events/ticket");
    if (!isWanted) return;
    const where = new URL("/ws", location.href);
    where.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    where.search = new URLSearchParams({ batch: "true", detail: "summary", ticket });
    if (seq !== null) where.searchParams.set("after", seq);
    listenOn(new WebSocket(where));
  } catch {
    again();
  }
}

function listenOn(made) {
  socket = made;
  made.onmessage = (message) => {
    const told = JSON.parse(message.data);
    for (const event of told.event === "batch" ? told.data : [told]) take(event);
  };
  made.onclose = () => {
    if (socket === made) again();
  };
}

function again() {
  socket = null;
  if (!isWanted || !session.value?.role) return;
  connection.value = "lost";
  // Not all pages at the same moment, when a manager comes back.
  const wait = Math.min(LONGEST_MS, 500 * 2 ** tries++) * (0.5 + Math.random() / 2);
  timer = setTimeout(open, wait);
}

function take(event) {
  const isNew = event.event === "hello" || event.event === "reset";
  if (isNew) {
    // What changed between the first load and now was told to nobody.
    const wasLost = tries > 0 || seq === null;
    tries = 0;
    connection.value = "live";
    if (event.event === "reset" || wasLost) for (const act of [...resets]) act();
  }
  if (event.seq) seq = event.seq;
  if (event.event === "cluster_summary") summary.value = event.data;
  for (const { wanted, hear } of [...hearers]) {
    if (!wanted || wanted.has(event.event)) hear(event);
  }
}

addEventListener("online", () => isWanted && !socket && open());


// {data, error, isLoading, reload}: what `path` answers.
//   query    parameters of the request; a change loads anew, with the old data shown on
//   events   names of events after which it is loaded anew (null: none)
//   matches  (event) => bool, when not every one of them counts
//   every    seconds after which it is loaded anew without any event
//   pause    seconds between two loads at least, however many events come
//   later    events that come all the time where much runs: loaded anew some seconds after
// A hidden page loads nothing until it is seen again. `path` may be null: nothing yet.
export function useData(path, { query, events = null, later = null, matches, every, pause = 0.5 } = {}) {
  const [state, setState] = useState({ data: null, error: null, isLoading: true });
  const asked = path === null ? null : JSON.stringify([path, query]);
  const box = useRef({});
  const mine = box.current;
  mine.matches = matches;

  const load = useCallback(async () => {
    if (asked === null) return;
    mine.timer = clearTimeout(mine.timer);
    mine.late = clearTimeout(mine.late);
    if (document.hidden) {
      mine.isStale = true;
      return;
    }
    if (mine.busy === asked) {
      mine.isStale = true;
      return;
    }
    mine.busy = asked;
    mine.isStale = false;
    let told;
    try {
      told = { data: await get(path, query), error: null };
    } catch (error) {
      // Given up because somebody signs out: nothing to show.
      told = error.name === "AbortError" ? {} : { error };
    }
    if (mine.busy !== asked) return;
    mine.busy = null;
    mine.at = performance.now();
    // With a fault, what was known stays on the screen.
    setState((old) => ({ ...old, ...told, isLoading: false }));
    if (mine.isStale) soon();
  }, [asked]);

  // At once when it was quiet, and otherwise once for all that came meanwhile.
  const soon = useCallback(() => {
    if (mine.timer) return;
    const left = Math.max(0, 1000 * pause - (performance.now() - (mine.at ?? 0)));
    mine.timer = setTimeout(load, left);
  }, [load]);

  useEffect(() => {
    setState((old) => ({ ...old, isLoading: true }));
    load();
    const seen = () => !document.hidden && mine.isStale && load();
    document.addEventListener("visibilitychange", seen);
    const ends = [onReset(load), () => document.removeEventListener("visibilitychange", seen)];
    if (events) {
      ends.push(listen(events, (event) => (!mine.matches || mine.matches(event)) && soon()));
    }
    if (later) {
      ends.push(listen(later, () => (mine.late ??= setTimeout(soon, LATER_MS))));
    }
    if (every) {
      const clock = setInterval(soon, every * 1000);
      ends.push(() => clearInterval(clock));
    }
    return () => {
      mine.busy = null;
      mine.timer = clearTimeout(mine.timer);
      mine.late = clearTimeout(mine.late);
      for (const end of ends) end();
    };
  }, [asked, String(events), String(later), every]);

  return { ...state, reload: load };
}
