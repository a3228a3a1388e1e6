"""`make bench-ui`: is the dashboard quick with 200 nodes and 100,000 tasks behind it?

A real manager, nodes that beat over HTTP (`nodes_fleet.py`), a filled store, and a real
Chromium. Prints a table and writes `results/ui.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg
import httpx
import psutil
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.corral_side import CorralSide, corral_side
from bench.meter import BenchError
from bench.nodes_watch import DATABASE, Watch, fleet_of
from bench.result import write
from bench.ui_browser import chromium
from bench.ui_history import fill, prepare
from bench.ui_look import PAGES, Figures, Look, load_of_machine

TARGET = "ui"
PACKAGES = ("corral", "uvicorn", "fastapi", "msgspec", "asyncpg", "playwright")
GOALS = {
    "page_p95_ms": 1000.0,
    "page_max_ms": 1000.0,
    "update_p95_ms": 1000.0,
    "filter_p95_ms": 1000.0,
    "scroll_stalls": 0.0,
    "filter_stalls": 0.0,
}
WAITING = 100
OPEN = ("overview", "tasks", "nodes", "queues", "node")
"""What five who look have open; one alone has the first."""
FORGET_S = 65.0
"""Events are kept for a minute after the last one who listened has left."""


def main() -> int:
    options = _options()
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        figures = _run(options, console.print)
    except BenchError as error:
        console.print(f"the bench failed: {error}")
        return 1
    console.print(_table(figures))
    for key, goal in GOALS.items():
        verdict = "met" if figures[key] <= goal else "missed"
        console.print(f"{key}: {figures[key]:.4g}, goal at most {goal:g}: {verdict}")
    console.print(f"written to {write(TARGET, figures, PACKAGES)}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    seconds = float(os.environ.get("UI_SECONDS", 30))
    parser.add_argument("--tasks", type=int, default=100_000, help="in the history")
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--workers", type=int, default=16, help="of each node")
    parser.add_argument("--cards", type=int, default=8, help="of each node")
    parser.add_argument("--rounds", type=int, default=5, help="loads of each page")
    parser.add_argument("--times", type=int, default=20, help="updates of each kind")
    parser.add_argument("--pace", type=float, default=2.0, help="submits a second")
    parser.add_argument("--seconds", type=float, default=seconds, help="of each cost")
    parser.add_argument("--hold", action="store_true", help="wait before the browser")
    return parser.parse_args()


def _run(options: argparse.Namespace, say: Callable[[str], object]) -> Figures:
    with (
        tempfile.TemporaryDirectory(prefix="corral-bench-") as name,
        corral_side(Path(name) / "corral", 0) as corral,
        fleet_of(corral.url, options.workers, options.cards) as fleet,
        Watch(corral, fleet, options.workers) as watch,
    ):
        say(f"{options.nodes} nodes join ...")
        watch.grow(options.nodes)
        say(f"{options.tasks} tasks are written into the store ...")
        asyncio.run(_fill(corral, options.tasks))
        key = (corral.home / "admin.key").read_text("utf-8").strip()
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=corral.url, headers=headers, timeout=60) as api:
            prepare(api, Path(name) / "models", WAITING)
            if options.hold:
                input(f"{corral.url} {key} {_database(corral)}: Enter goes on ")
            with chromium() as browser:
                names, manager = _names(api), corral.pids()["manager"]
                look = Look(browser, api, key, manager, names)
                return _look(look, options, say)


def _look(
    look: Look, options: argparse.Namespace, say: Callable[[str], object]
) -> Figures:
    load = load_of_machine()
    say(f"each page, {options.rounds} times ...")
    figures = look.pages(options.rounds)
    say("the task list ...")
    figures |= look.scrolling(60)
    figures |= look.filters()
    say(f"{options.times} updates of each kind ...")
    figures |= look.updates(options.times)
    figures |= _costs(look, options, say)
    return {
        **figures,
        "nodes": float(options.nodes),
        "workers": float(options.nodes * options.workers),
        "tasks": float(options.tasks),
        "load_before": load,
        "load_after": load_of_machine(),
    }


def _costs(
    look: Look, options: argparse.Namespace, say: Callable[[str], object]
) -> Figures:
    used, asked, foreign = {}, {}, 0.0
    for count in (len(OPEN), 1, 0):
        if not count:
            say(f"all are closed; {FORGET_S:g} s until the manager heeds that ...")
            time.sleep(FORGET_S)
        say(f"{count} dashboards for {options.seconds:g} s ...")
        paths = [PAGES[name][0] for name in OPEN[:count]]
        usage, asked[count] = look.cost(paths, options.seconds, options.pace)
        used[count] = usage.cpu_s["manager"] * 1000.0 / usage.wall_s
        foreign = max(foreign, usage.foreign)
    return {
        "requests_per_dashboard_s": asked[len(OPEN)] / len(OPEN) / options.seconds,
        "cpu_ms_per_dashboard_s": (used[len(OPEN)] - used[0]) / len(OPEN),
        "cpu_ms_per_overview_s": used[1] - used[0],
        **{f"manager_cpu_ms_s_{count}": value for count, value in used.items()},
        "foreign_cpu_share": foreign,
    }


def _database(corral: CorralSide) -> str:
    return psutil.Process(corral.pids()["manager"]).environ()[DATABASE]


async def _fill(corral: CorralSide, tasks: int) -> None:
    database = await asyncpg.connect(_database(corral))
    try:
        await fill(database, tasks)
    finally:
        await database.close()


def _names(api: httpx.Client) -> dict[str, str]:
    """An ended task, the worker that ran it, and the first node of the list."""
    told = api.get("/tasks?status=completed&limit=1").raise_for_status().json()
    task = told["tasks"][0]
    nodes = api.get("/nodes").raise_for_status().json()["nodes"]
    first = min(nodes, key=lambda node: node["hostname"])
    return {
        "task": task["task_id"],
        "worker": task["worker_id"],
        "node": first["node_id"],
    }


def _table(figures: Figures) -> Table:
    table = Table("figure", "value", "goal", title="The dashboard")
    for key, value in figures.items():
        goal = f"at most {GOALS[key]:g}" if key in GOALS else ""
        table.add_row(key, f"{value:,.4g}", goal)
    return table


if __name__ == "__main__":
    raise SystemExit(main())
