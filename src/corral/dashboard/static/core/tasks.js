// A list of tasks that is never loaded whole, and is up to date without moving under
// whoever reads it: what is known changes in its place, what is new waits to be asked for.
import { useState, useEffect, useRef, useCallback } from "./dom.js";
import { get, post } from "./api.js";
import { listen, onReset } from "./live.js";

const PAGE = 200;
const QUIET_MS = 700;
const SOON_MS = 150;
const ENDED = new Set(["completed", "failed", "cancelled", "timed_out", "error"]);
export const isEnded = (status) => ENDED.has(status);

// New rows in front of what is known; all of it anew when they do not touch.
export function merged(known, page) {
  const fresh = new Set(page.map((row) => row.task_id));
  let last = -1;
  known.forEach((row, place) => {
    if (fresh.has(row.task_id)) last = place;
  });
  return last < 0 && known.length ? page : [...page, ...known.slice(last + 1).filter((row) => !fresh.has(row.task_id))];
}

// {rows, total, isLoading, error, fresh, more(), reload()}
//   query    what GET /tasks is asked
//   isCalm   () => bool: may rows come in at the top now?
export function useTasks(query, isCalm) {
  const [state, setState] = useState({ rows: [], total: null, next: null, isLoading: true, error: null, fresh: 0 });
  const mine = useRef({ turn: 0, rows: [], changed: new Map(), fresh: 0 }).current;
  const asked = JSON.stringify(query);
  mine.rows = state.rows;
  mine.isCalm = isCalm;

  const load = useCallback(async (isQuiet) => {
    const turn = ++mine.turn;
    if (!isQuiet) setState((old) => ({ ...old, isLoading: true }));
    try {
      const page = await get("/tasks", { ...query, limit: PAGE, results: false });
      if (turn !== mine.turn) return;
      mine.fresh = 0;
      setState((old) => {
        const rows = isQuiet ? merged(old.rows, page.tasks) : page.tasks;
        const isWhole = rows.length === page.tasks.length;
        return { rows, total: page.total, next: isWhole ? page.next_cursor : old.next, isLoading: false, error: null, fresh: 0 };
      });
    } catch (error) {
      if (turn === mine.turn) setState((old) => ({ ...old, isLoading: false, error }));
    }
  }, [asked]);

  const more = useCallback(async () => {
    const cursor = mine.next;
    if (!cursor || mine.isMore) return;
    mine.isMore = true;
    const turn = mine.turn;
    try {
      const page = await get("/tasks", { ...query, limit: PAGE, results: false, cursor });
      if (turn === mine.turn) {
        setState((old) => {
          const known = new Set(old.rows.map((row) => row.task_id));
          return { ...old, rows: [...old.rows, ...page.tasks.filter((row) => !known.has(row.task_id))], total: page.total, next: page.next_cursor };
        });
      }
    } catch (error) {
      setState((old) => ({ ...old, error }));
    }
    mine.isMore = false;
  }, [asked]);
  mine.next = state.next;

  const flush = useCallback(async () => {
    mine.timer = 0;
    if (document.hidden) return;
    mine.at = performance.now();
    if (mine.isCalm()) {
      mine.changed.clear();
      return load(true);
    }
    const changed = new Map(mine.changed);
    mine.changed.clear();
    const known = mine.rows.filter((row) => changed.has(row.task_id));
    const ended = known.filter((row) => isEnded(changed.get(row.task_id).status)).map((row) => row.task_id);
    let found = [];
    try {
      if (ended.length) found = (await post("/tasks/collect", { task_ids: ended.slice(0, 1000) })).tasks;
    } catch {
      // The words of the event must do.
    }
    const anew = new Map(found.map((task) => [task.task_id, task]));
    const update = (row) => {
      const change = changed.get(row.task_id);
      if (!change) return row;
      const began = change.status === "running" && row.status !== "running" ? { started_at: change.at } : {};
      return anew.get(row.task_id) ?? { ...row, ...began, status: change.status };
    };
    setState((old) => ({ ...old, fresh: mine.fresh, rows: known.length ? old.rows.map(update) : old.rows }));
  }, [load]);

  useEffect(() => {
    mine.fresh = 0;
    mine.changed.clear();
    load(false);
    const soon = () => {
      // Soon when it was quiet, and otherwise once for all that came meanwhile.
      const isQuiet = performance.now() - (mine.at ?? 0) > QUIET_MS;
      mine.timer ||= setTimeout(flush, isQuiet ? SOON_MS : QUIET_MS);
    };
    const hear = ({ data, timestamp }) => {
      for (const task of data.tasks) mine.changed.set(task.task_id, { status: task.status, at: timestamp });
      mine.fresh += data.events.task_submitted ?? 0;
      soon();
    };
    const seen = () => !document.hidden && soon();
    document.addEventListener("visibilitychange", seen);
    const ends = [listen("tasks_changed", hear), onReset(() => load(true)), () => document.removeEventListener("visibilitychange", seen)];
    return () => {
      mine.turn += 1;
      clearTimeout(mine.timer);
      mine.timer = 0;
      for (const end of ends) end();
    };
  }, [asked]);

  return { ...state, more, reload: () => load(false) };
}
