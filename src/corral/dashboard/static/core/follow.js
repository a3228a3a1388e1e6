// What a task says while it runs: long requests, one after the other, until its end.
import { useState, useEffect } from "./dom.js";
import { get, part } from "./api.js";

const WAIT_S = 20;
const MOST = 5000;
const PAUSE_MS = 2000;

const pause = (stop) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, PAUSE_MS);
    stop.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });

async function follow(ask, take, stop) {
  let told = null;
  while (!stop.aborted) {
    try {
      told = await ask(told, stop);
      if (stop.aborted) return;
      take(told);
      if (told.done) return;
    } catch (error) {
      if (stop.aborted || error.status === 404) return;
      await pause(stop);
    }
  }
}

// `again` changes when it must be followed anew, as after a new run.
function useFollowed(ask, take, empty, again) {
  const [state, setState] = useState(empty);
  useEffect(() => {
    const end = new AbortController();
    setState(empty);
    follow(ask, (told) => setState((old) => take(old, told)), end.signal);
    return () => end.abort();
  }, [again]);
  return state;
}

// {lines: [{attempt, at, stream, text}], progress, status, done}
export const useLogs = (id, again) =>
  useFollowed(
    (told, signal) =>
      get(
        `/tasks/${part(id)}/logs`,
        told
          ? { after: told.cursor, wait: WAIT_S, progress: told.progress?.fraction ?? -1 }
          : { tail: MOST },
        { signal },
      ),
    (old, told) => ({
      lines: told.lines.length ? [...old.lines, ...told.lines].slice(-MOST) : old.lines,
      progress: told.progress ?? null,
      status: told.status,
      done: told.done,
    }),
    { lines: [], progress: null, status: null, done: false },
    again,
  );

// {pieces: [value], skipped, done}: what the task emits.
export const useOutput = (id, again) =>
  useFollowed(
    (told, signal) =>
      get(`/tasks/${part(id)}/output`, told ? { after: told.cursor, wait: WAIT_S } : {}, { signal }),
    (old, told) => {
      let kept = old.pieces;
      // Another attempt: what came after the number it goes on from is void.
      if (told.restarted) kept = kept.filter((piece) => piece.number <= told.restarted.after);
      return { pieces: [...kept, ...told.pieces].slice(-MOST), skipped: old.skipped + told.skipped, done: told.done };
    },
    { pieces: [], skipped: 0, done: false },
    again,
  );
