"""`make bench`: throughput, processor time and latency of Corral beside plain Celery.

Both run at once and are measured in turns, so that a busy machine slows both alike.
Prints a table and writes `results/bulk.json`.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.celery_side import CelerySide, celery_side
from bench.corral_side import CONCURRENT, CorralSide, corral_side
from bench.meter import BenchError, Usage
from bench.result import write

TARGET = "bulk"
# As many as Celery has processes; docs/benchmarks.md has what one does instead.
WORKERS = 2
PACKAGES = ("corral", "celery", "kombu", "redis", "hiredis", "uvicorn", "asyncpg")
GOALS = {"ratio": 10.0, "cpu_ms_per_task": 0.5, "rtt_p50_ms": 8.0}

Figures = dict[str, float]


def main() -> int:
    options = _options()
    console = Console(highlight=False)
    # What was started is stopped on the way out, also when asked to end.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        figures = _run(options, console.print)
    except BenchError as error:
        console.print(f"the bench failed: {error}")
        return 1
    console.print(_table(figures, options))
    console.print(f"written to {write(TARGET, figures, PACKAGES)}")
    return 0


def _run(options: argparse.Namespace, say: Callable[[str], object]) -> Figures:
    with tempfile.TemporaryDirectory(prefix="corral-bench-") as name:
        place = Path(name)
        say("starting Corral and Celery ...")
        with (
            corral_side(place / "corral", options.workers) as corral,
            celery_side(place / "celery") as celery,
        ):
            return measure_all(corral, celery, options, say)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=10_000, help="for Corral")
    parser.add_argument("--celery-tasks", type=int, default=3_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--round-trips", type=int, default=300)
    parser.add_argument("--crowd-tasks", type=int, default=1_000)
    parser.add_argument("--workers", type=int, default=WORKERS, help="Corral's")
    return parser.parse_args()


def measure_all(
    corral: CorralSide,
    celery: CelerySide,
    options: argparse.Namespace,
    say: Callable[[str], object],
) -> Figures:
    """Everything, in turns; each figure is the median of its repeats."""
    _warm_up(corral, celery)
    bulks: dict[str, list[Usage]] = {"corral": [], "loop": [], "group": []}
    for number in range(1, options.repeats + 1):
        say(f"round {number} of {options.repeats}: in bulk")
        bulks["corral"].append(corral.bulk(options.tasks))
        for kind in ("loop", "group"):
            usage = celery.bulk(options.celery_tasks, is_group=kind == "group")
            bulks[kind].append(usage)
    say(f"one at a time, then {CONCURRENT} clients at a time")
    figures = _bulk_figures(bulks, options.tasks, options.celery_tasks)
    figures |= _latency("rtt", corral.round_trips_s(options.round_trips))
    figures |= _latency("celery_rtt", celery.round_trips_s(options.round_trips))
    crowd = [corral.concurrent(options.crowd_tasks) for _ in range(options.repeats)]
    figures["concurrent_tasks_per_s"] = statistics.median(
        options.crowd_tasks / usage.wall_s for usage in crowd
    )
    figures["concurrent_cpu_ms_per_task"] = _median_sum(
        [usage.per_task_ms(options.crowd_tasks) for usage in crowd]
    )
    return figures


def _warm_up(corral: CorralSide, celery: CelerySide) -> None:
    corral.bulk(2_000)
    corral.round_trips_s(30)
    celery.bulk(200, is_group=False)


def _bulk_figures(
    bulks: Mapping[str, Sequence[Usage]], tasks: int, celery_tasks: int
) -> Figures:
    sizes = {"corral": tasks, "loop": celery_tasks, "group": celery_tasks}
    speed = {
        kind: statistics.median(sizes[kind] / usage.wall_s for usage in usages)
        for kind, usages in bulks.items()
    }
    best = max("loop", "group", key=speed.__getitem__)
    ours = [usage.per_task_ms(tasks) for usage in bulks["corral"]]
    theirs = [usage.per_task_ms(celery_tasks) for usage in bulks[best]]
    figures = {
        "bulk_tasks_per_s": speed["corral"],
        "cpu_ms_per_task": _median_sum(ours),
        "celery_bulk_tasks_per_s": speed[best],
        "celery_loop_tasks_per_s": speed["loop"],
        "celery_group_tasks_per_s": speed["group"],
        "celery_cpu_ms_per_task": _median_sum(theirs),
        "ratio": speed["corral"] / speed[best],
        "foreign_cpu_share": statistics.median(
            usage.foreign for usages in bulks.values() for usage in usages
        ),
    }
    for kind in ours[0]:
        figures[f"cpu_ms_{kind}"] = statistics.median(each[kind] for each in ours)
    return figures


def _median_sum(shares: Sequence[Mapping[str, float]]) -> float:
    return statistics.median(sum(share.values()) for share in shares)


def _latency(name: str, took_s: Sequence[float]) -> Figures:
    cuts = statistics.quantiles(took_s, n=100, method="inclusive")
    return {f"{name}_p{at}_ms": cuts[at - 1] * 1000.0 for at in (50, 95, 99)}


def _table(figures: Figures, options: argparse.Namespace) -> Table:
    table = Table(title=f"{options.tasks:,} echo tasks, median of {options.repeats}")
    table.add_column("figure")
    table.add_column("", justify="right")
    table.add_column("goal", justify="right")
    for key, value in figures.items():
        table.add_row(key, _number(value), _goal(key, value))
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _goal(key: str, value: float) -> str:
    if key not in GOALS:
        return ""
    goal = GOALS[key]
    if key == "ratio":
        return f"at least {goal:g}, {'met' if value >= goal else 'missed'}"
    return f"at most {goal:g}, {'met' if value <= goal else 'missed'}"


if __name__ == "__main__":
    raise SystemExit(main())
