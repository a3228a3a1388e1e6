"""What is measured of the dashboard: pages, task list, updates, the manager's cost."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import psutil
from playwright.sync_api import Browser

from bench.meter import BenchError, Kinds, Usage, family, measure
from bench.nodes_body import HOLD
from bench.ui_browser import Viewer, viewer
from bench.ui_history import MODELS, TEAMS, TYPES, WAITING

Figures = dict[str, float]
STALL_MS = 200.0
_ROWS = "tbody tr[data-id]"
# `{...}` stands for an id of this cluster.
PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "overview": (
        "/",
        (
            ".figure .value",
            "[aria-label='GPUs'] .legend",
            f"[aria-label='Running now'] {_ROWS}",
            "canvas",
        ),
    ),
    "nodes": ("/nodes", (_ROWS,)),
    "node": (
        "/nodes/{node}",
        ("canvas", f"[aria-label='Workers'] {_ROWS}", "[aria-label='Events'] table"),
    ),
    "workers": ("/workers", (_ROWS,)),
    "worker": ("/workers/{worker}", (".facts", f"[aria-label='Tasks'] {_ROWS}")),
    "events": ("/events", (f"[aria-label='Events'] {_ROWS}",)),
    "tasks": ("/tasks", (_ROWS, ".card [role='status']")),
    "task": (
        "/tasks/{task}",
        ("[aria-label='Why there'] > :nth-child(2)", "[aria-label='Facts'] .facts"),
    ),
    "submit": ("/submit", ("form textarea",)),
    "queues": ("/queues", (f"tr[data-id='{HOLD}'] td:nth-child(4)",)),
    "dead_letters": ("/dead-letters", (_ROWS,)),
    "schedules": ("/schedules", (_ROWS,)),
    "schedule": ("/schedules/s03", (".times", "[aria-label='Last runs'] .empty")),
    "models": ("/models", (f"[aria-label='Catalogue'] {_ROWS}",)),
    "model": ("/models/m03", (".facts",)),
    "usage": ("/usage", ("canvas", _ROWS)),
    "simulate": ("/simulate", ("form",)),
    "keys": ("/keys", (_ROWS,)),
}
_TOTAL = """(total) => {
  const found = document.querySelector(".card [role='status']")?.textContent ?? "";
  return found.replace(/[^0-9]/g, "") === total && !document.querySelector(".skeleton");
}"""
_ROW = "(id) => document.querySelector(`tr[data-id='${id}']`) !== null"
_CELL = """(id, word) =>
  document.querySelector(`tr[data-id='${id}'] td:nth-child(2)`)?.textContent
    .includes(word)"""
_LEAD = "(word) => document.querySelector('.lead')?.textContent.includes(word)"
_FIGURE = """(name, before) => {
  const found = [...document.querySelectorAll(".figure")]
    .find((one) => one.querySelector(".name").textContent === name);
  return found && found.querySelector(".value").textContent !== before;
}"""
_READ = """(name) => [...document.querySelectorAll(".figure")]
  .find((one) => one.querySelector(".name").textContent === name)
  .querySelector(".value").textContent"""


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@dataclass(frozen=True, slots=True)
class Look:
    """One cluster, asked over its API, and a browser that looks at it."""

    browser: Browser
    api: httpx.Client
    key: str
    manager: int
    names: dict[str, str]

    def _viewer(self) -> Viewer:
        wants = {}
        for path, selectors in PAGES.values():
            wants[path.format(**dict.fromkeys(self.names, "[^/]+"))] = selectors
        url = str(self.api.base_url).rstrip("/")
        return viewer(self.browser, url, self.key, wants)

    @contextmanager
    def _on(self, path: str) -> Iterator[Viewer]:
        made = self._viewer()
        try:
            made.open(path.format(**self.names))
            yield made
        finally:
            made.close()

    def pages(self, rounds: int) -> Figures:
        """Every page loaded several times; and once by a browser that has nothing."""
        took: dict[str, list[float]] = {name: [] for name in PAGES}
        made = self._viewer()
        cold_ms = made.open("/")
        for _ in range(rounds):
            for name, (path, _) in PAGES.items():
                took[name].append(made.open(path.format(**self.names)))
        made.close()
        every = [value for values in took.values() for value in values]
        return {
            "page_p95_ms": percentile(every, 0.95),
            "page_p50_ms": statistics.median(every),
            "page_max_ms": max(every),
            "first_visit_ms": cold_ms,
            **{f"page_{n}_ms": statistics.median(v) for n, v in took.items()},
            **{f"page_{n}_max_ms": max(v) for n, v in took.items()},
        }

    def scrolling(self, steps: int) -> Figures:
        """The wheel turned over the task list, faster than anybody reads."""
        with self._on("/tasks") as made:
            box = made.page.locator(".table-box").bounding_box()
            if box is None:
                raise BenchError("the task list is not there")
            made.page.mouse.move(box["x"] + 200, box["y"] + 200)

            def turn() -> None:
                for _ in range(steps):
                    made.page.mouse.wheel(0, 900)
                    made.page.wait_for_timeout(40)

            told = made.frames(turn)
            reached = made.page.evaluate(
                "() => Math.max(...[...document.querySelectorAll('tr[data-place]')]"
                ".map((row) => Number(row.dataset.place)))"
            )
        return {"scroll_rows": float(reached), **_frames("scroll", told)}

    def filters(self) -> Figures:
        """Each filter of the task list: until its rows and their number are shown."""
        took: Figures = {}
        frames: dict[str, list[float]] = {"gaps": [], "long": []}
        with self._on("/tasks") as made:
            everything = self._total({})
            clear = made.page.get_by_role("button", name="Clear")
            for name, field, value, query in self._filters():
                total = self._total(query)
                made.page.evaluate("() => benchFrames.start()")
                act = partial(_choose, made, field, value)
                took[name] = made.took_ms(act, _TOTAL, str(total))
                seen = made.page.evaluate("() => benchFrames.stop()")
                for key, values in frames.items():
                    values += seen[key]
                made.took_ms(clear.click, _TOTAL, str(everything))
        return {
            "filter_p95_ms": percentile(list(took.values()), 0.95),
            **{f"filter_{name}_ms": value for name, value in took.items()},
            **_frames("filter", frames),
        }

    def _filters(self) -> list[tuple[str, str, str, dict[str, str]]]:
        worker = self.names["worker"]
        failed = "failed,error,timed_out"
        search = "Search id, type, error"
        return [
            ("state", "State", failed, {"status": failed}),
            ("type", "Type", TYPES[0], {"task_type": TYPES[0]}),
            ("model", "Model", MODELS[0], {"model_name": MODELS[0]}),
            ("worker", "Worker id", worker, {"worker_id": worker}),
            ("label", "Label", f"team={TEAMS[0]}", {"label": f"team:{TEAMS[0]}"}),
            ("text", search, "part 77", {"search": "part 77"}),
            ("nothing", search, "no such task", {"search": "no such task"}),
        ]

    def _total(self, query: dict[str, str]) -> int:
        told = self.api.get("/tasks", params={**query, "limit": 1}).raise_for_status()
        return int(told.json()["total"])

    def updates(self, times: int) -> Figures:
        """Something changes, and an open page shows it."""
        took = {
            "submit": self._each("/tasks", times, self._submit),
            "cancel": self._each("/tasks", times, self._cancel),
            "node": self._each("/nodes", times, self._node),
            "figure": self._each("/", times, self._figure),
        }
        every = [value for values in took.values() for value in values]
        return {
            "update_p95_ms": percentile(every, 0.95),
            "update_p50_ms": statistics.median(every),
            "update_max_ms": max(every),
            **{f"update_{n}_p95_ms": percentile(v, 0.95) for n, v in took.items()},
        }

    def _each(
        self, path: str, times: int, once: Callable[[Viewer, int], float]
    ) -> list[float]:
        with self._on(path) as made:
            time.sleep(3.0)
            took = []
            for number in range(times):
                took.append(once(made, number))
                # Not in step with any clock of the page or the manager.
                time.sleep(random.uniform(0.2, 1.5))
        return took

    def _post(self, path: str, body: Any) -> Any:
        return self.api.post(path, json=body).raise_for_status().json()

    def _task(self, name: str) -> None:
        self._post("/tasks", {"task_type": WAITING, "task_id": name})

    def _submit(self, made: Viewer, number: int) -> float:
        name = f"seen-{number}-{random.getrandbits(40):x}"
        return made.took_ms(lambda: self._task(name), _ROW, name)

    def _cancel(self, made: Viewer, number: int) -> float:
        name = f"gone-{number}-{random.getrandbits(40):x}"
        self._task(name)
        made.go(f"/tasks/{name}")
        made.took_ms(lambda: None, _LEAD, "queued")
        time.sleep(1.0)
        path = f"/tasks/{name}/cancel"
        return made.took_ms(lambda: self._post(path, {}), _LEAD, "cancelled")

    def _node(self, made: Viewer, number: int) -> float:
        node = self.names["node"]
        verb, word = ("uncordon", "online") if number % 2 else ("cordon", "cordoned")
        path = f"/nodes/{node}/{verb}"
        return made.took_ms(lambda: self._post(path, {}), _CELL, node, word)

    def _figure(self, made: Viewer, number: int) -> float:
        before = made.page.evaluate(_READ, "Waiting")
        name = f"more-{number}-{random.getrandbits(40):x}"
        return made.took_ms(lambda: self._task(name), _FIGURE, "Waiting", before)

    def cost(
        self, paths: Sequence[str], seconds: float, pace: float
    ) -> tuple[Usage, int]:
        """The manager's processor time while these pages are open and tasks change.

        With it, how many requests they made.
        """
        opened: list[Viewer] = []
        try:
            for path in paths:
                opened.append(self._viewer())
                opened[-1].open(path.format(**self.names))
            time.sleep(3.0)
            with self._churn(pace):
                before = sum(made.requests() for made in opened)
                usage = measure(lambda: time.sleep(seconds), self._processes)
                return usage, sum(made.requests() for made in opened) - before
        finally:
            for made in opened:
                made.close()

    def _processes(self) -> Kinds:
        return {"manager": family(self.manager)}

    @contextmanager
    def _churn(self, pace: float) -> Iterator[None]:
        """So many tasks a second are submitted, and cancelled after a while."""
        is_over = threading.Event()

        def churn() -> None:
            alive: list[str] = []
            while not is_over.wait(1.0 / pace):
                alive.append(f"churn-{random.getrandbits(48):x}")
                self._task(alive[-1])
                if len(alive) > 20:
                    self._post(f"/tasks/{alive.pop(0)}/cancel", {})

        thread = threading.Thread(target=churn, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()


def _choose(made: Viewer, field: str, value: str) -> None:
    if field in ("State", "Type"):
        made.page.get_by_label(field, exact=True).select_option(value)
    else:
        made.page.get_by_label(field).fill(value)


def _frames(name: str, told: dict[str, Any]) -> Figures:
    gaps, long = told["gaps"] or [0.0], told["long"] or [0.0]
    return {
        f"{name}_frame_p95_ms": percentile(gaps, 0.95),
        f"{name}_frame_max_ms": max(gaps),
        f"{name}_long_task_max_ms": max(long),
        f"{name}_stalls": float(sum(gap > STALL_MS for gap in gaps)),
    }


def load_of_machine() -> float:
    return float(psutil.getloadavg()[0])
