// What every file draws with: `html` for markup, hooks, signals.
import { h, render, Fragment } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export { h, render, Fragment };
export { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback } from "../vendor/hooks.js";
export { signal, computed, effect, batch, useSignal, useComputed } from "../vendor/signals.js";
export const html = htm.bind(h);

let last = 0;
// A fresh id, for labels and what they name.
export const newId = (word = "i") => `${word}-${++last}`;
