"""`make bench-nodes`: what the heartbeats of many nodes cost the manager.

Simulated nodes (a process of their own, `nodes_fleet.py`) join a real manager, beat
every 5 s and grow in number. Prints a table and writes `results/nodes.json`.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.corral_side import corral_side
from bench.meter import BenchError
from bench.nodes_watch import Figures, Watch, fleet_of
from bench.result import write

TARGET = "nodes"
PACKAGES = ("corral", "uvicorn", "fastapi", "msgspec", "asyncpg")
GOALS = {"manager_cpu_cores": 0.5, "commits_per_s": 2.0, "false_losses": 0.0}
SHORT_S, LONG_S = 60.0, 300.0
SHOWN = {
    "manager_cpu_cores": "manager, cores",
    "cpu_ms_per_beat": "manager, ms a beat",
    "commits_per_s": "commits a second",
    "all_commits_per_s": "with reads, vacuum",
    "beat_p50_ms": "beat p50, ms",
    "beat_p99_ms": "beat p99, ms",
    "false_losses": "false losses",
    "start_s": "start, s",
    "postgres_cpu_cores": "PostgreSQL, cores",
    "simulator_cpu_cores": "simulator, cores",
}


def main() -> int:
    options = _options()
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        steps = _run(options, console.print)
    except BenchError as error:
        console.print(f"the bench failed: {error}")
        return 1
    console.print(_table(steps))
    figures = _summary(steps)
    for key, goal in GOALS.items():
        verdict = "met" if figures[key] <= goal else "missed"
        console.print(f"{key}: {figures[key]:.3g}, goal at most {goal:g}: {verdict}")
    console.print(f"written to {write(TARGET, figures, PACKAGES)}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    long_s = float(os.environ.get("NODES_SECONDS", LONG_S))
    parser.add_argument("--nodes", type=int, nargs="+", default=[50, 100, 200])
    parser.add_argument("--seconds", type=float, default=long_s, help="the last step")
    parser.add_argument("--workers", type=int, default=16, help="of each node")
    parser.add_argument("--cards", type=int, default=8, help="of each node")
    parser.add_argument(
        "--restart", action="store_true", help="kill -9 the manager in the end"
    )
    return parser.parse_args()


def _run(options: argparse.Namespace, say: Callable[[str], object]) -> list[Figures]:
    with (
        tempfile.TemporaryDirectory(prefix="corral-bench-") as name,
        corral_side(Path(name) / "corral", 0) as corral,
        fleet_of(corral.url, options.workers, options.cards) as fleet,
        Watch(corral, fleet, options.workers) as watch,
    ):
        short_s = min(SHORT_S, options.seconds)
        say(f"an idle manager for {short_s / 4.0:g} s ...")
        steps = [{"nodes": 0.0, **watch.measure(short_s / 4.0)}]
        for count in options.nodes:
            is_last = count == options.nodes[-1]
            seconds = options.seconds if is_last else short_s
            say(f"{count} nodes for {seconds:g} s ...")
            start_s = watch.grow(count)
            steps.append({"start_s": start_s, **watch.measure(seconds)})
        if options.restart:
            say(f"a manager killed under {options.nodes[-1]} nodes ...")
            restart_s = watch.kill_manager()
            steps.append({"restart_s": restart_s, **watch.measure(short_s)})
        return steps


def _table(steps: list[Figures]) -> Table:
    table = Table(title="Heartbeats of simulated nodes")
    table.add_column("figure")
    for step in steps:
        name = "killed" if "restart_s" in step else f"{step['nodes']:g} nodes"
        table.add_column(name, justify="right")
    for key, title in SHOWN.items():
        told = [f"{step[key]:.3g}" if key in step else "" for step in steps]
        table.add_row(title, *told)
    busiest = [step for step in steps if step["nodes"] and "restart_s" not in step]
    idle = steps[0]["manager_cpu_cores"]
    grown = [(s["manager_cpu_cores"] - idle) / s["nodes"] * 1000.0 for s in busiest]
    blank = [""] * (len(steps) - 1 - len(grown))
    table.add_row("millicores a node", "", *(f"{g:.3g}" for g in grown), *blank)
    return table


def _summary(steps: list[Figures]) -> Figures:
    """The last step's figures, and those by which it can be seen how they grow."""
    measured = [step for step in steps if "restart_s" not in step]
    figures = dict(measured[-1])
    for step in measured:
        for key in ("manager_cpu_cores", "commits_per_s", "beat_p99_ms"):
            if key in step:
                figures[f"{key}_{step['nodes']:g}"] = step[key]
    for step in steps:
        if "restart_s" in step:
            figures["restart_s"] = step["restart_s"]
            figures["restart_false_losses"] = step["false_losses"]
    figures["false_losses"] = sum(step["false_losses"] for step in steps)
    return figures


if __name__ == "__main__":
    raise SystemExit(main())
