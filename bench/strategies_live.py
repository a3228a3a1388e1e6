"""`make bench-live`: strategies on a real cluster with simulated cards.

Three parts of the recorded slice (folder TRACES, by default `../shared/data`), in less
time, go to a cluster of eight workers, once for each strategy, and through the
simulator. Prints tables, writes `results/live.json` and a plot into `docs/img/`, and
exits with 1 when the order of the strategies is not what it should be.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.live_side import Live, live
from bench.live_work import Figures, Work, in_order, parts, simulated
from bench.meter import BenchError
from bench.result import ROOT, write
from corral.sim.chart import Bars, Curves, Panel, svg
from corral.sim.measure import POINTS

TARGET = "live"
PACKAGES = ("corral", "celery", "redis", "asyncpg", "uvicorn")
IMAGE = ROOT / "docs" / "img" / "live.svg"
ORDER = ("smith", "least_loaded", "weighted_round_robin")
"""From the least mean time to the largest, if all is well."""
REPEATS, TASKS, SECONDS = 3, 2_000, 120.0
HEADS = ("#", "strategy", "mean s", "p50 s", "p99 s", "SLO %", "loads")


@dataclass(frozen=True, slots=True)
class Row:
    """One strategy on one part, live and in virtual time."""

    repeat: int
    strategy: str
    live: Live
    simulated: Figures


def main() -> int:
    options = _options()
    console = Console(highlight=False)
    try:
        works = list(
            parts(Path(options.traces), REPEATS, options.tasks, options.seconds)
        )
        rows = _rows(works[: options.repeats], console)
    except BenchError as error:
        console.print(f"nothing was measured: {error}")
        return 1
    console.print(_table(rows))
    console.print(_twins(rows))
    if (options.repeats, options.tasks, options.seconds) == (REPEATS, TASKS, SECONDS):
        _draw(rows)
        console.print(f"written to {write(TARGET, _figures(rows), PACKAGES)}")
    else:
        console.print("not the whole comparison: nothing is written")
    return _judge(rows, console)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = os.environ.get("TRACES") or str(ROOT.parent / "shared" / "data")
    parser.add_argument("--traces", default=default, help="the folder of the traces")
    parser.add_argument("--tasks", type=int, default=TASKS, help="in a part")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="a part lasts")
    parser.add_argument("--repeats", type=int, choices=(1, 2, 3), default=REPEATS)
    return parser.parse_args()


def _rows(works: Sequence[Work], console: Console) -> list[Row]:
    rows = []
    for repeat, work in enumerate(works, 1):
        console.print(f"part {repeat}: a run takes {work.mean_run_s * 1e3:.0f} ms ...")
        for strategy in ORDER:
            row = Row(repeat, strategy, live(work, strategy), simulated(work, strategy))
            console.print(f"  {strategy}: {row.live.figures.mean_s:.3f} s")
            rows.append(row)
    return rows


def _table(rows: Sequence[Row]) -> Table:
    table = Table(*HEADS, "idle ms", "others %", title="live")
    table.columns[1].no_wrap = True
    for row in rows:
        told = (f"{row.live.handover_s * 1e3:.0f}", f"{row.live.foreign * 100:.0f}")
        table.add_row(str(row.repeat), row.strategy, *_cells(row.live.figures), *told)
    return table


def _twins(rows: Sequence[Row]) -> Table:
    table = Table(*HEADS, title="the same tasks in the simulator")
    for row in rows:
        table.add_row(str(row.repeat), row.strategy, *_cells(row.simulated))
    return table


def _cells(found: Figures) -> list[str]:
    times = (found.mean_s, found.p50_s, found.p99_s)
    return [*(f"{s:.2f}" for s in times), f"{found.slo_pct:.1f}", str(found.loads)]


def _figures(rows: Sequence[Row]) -> dict[str, float]:
    found: dict[str, float] = {}
    for side, means in (("live", _means(rows)), ("sim", _means(rows, is_live=False))):
        found[f"{side}_order_kept"] = sum(map(in_order, means))
        for strategy, own in zip(ORDER, zip(*means, strict=True), strict=True):
            found[f"{side}_mean_s_{strategy}"] = sum(own) / len(own)
    found["repeats"] = len(rows) // len(ORDER)
    found["foreign_cpu_share"] = max(row.live.foreign for row in rows)
    found["late_ms"] = 1e3 * max(row.live.late_s for row in rows)
    found["handover_ms"] = 1e3 * max(row.live.handover_s for row in rows)
    for row in rows:
        name = f"{row.strategy}_{row.repeat}"
        for side, told in (("live", row.live.figures), ("sim", row.simulated)):
            found[f"{side}_mean_s_{name}"] = told.mean_s
            found[f"{side}_slo_pct_{name}"] = told.slo_pct
            found[f"{side}_loads_{name}"] = told.loads
    return found


def _means(rows: Sequence[Row], *, is_live: bool = True) -> list[list[float]]:
    """Mean times of each part, in the order they should have."""
    found: dict[int, list[float]] = {}
    for row in rows:
        told = row.live.figures if is_live else row.simulated
        found.setdefault(row.repeat, []).append(told.mean_s)
    return list(found.values())


def _judge(rows: Sequence[Row], console: Console) -> int:
    words = " < ".join(ORDER)
    live_kept = [in_order(means) for means in _means(rows)]
    twin_kept = [in_order(means) for means in _means(rows, is_live=False)]
    for part, kept in enumerate(zip(live_kept, twin_kept, strict=True), 1):
        said = ["holds" if is_kept else "DOES NOT HOLD" for is_kept in kept]
        console.print(
            f"part {part}, {words}: live it {said[0]}, simulated it {said[1]}"
        )
    return 0 if all(live_kept) else 1


def _draw(rows: Sequence[Row]) -> None:
    bars = [(f"{r.strategy}, part {r.repeat}", r.live.figures.mean_s) for r in rows]
    panels: list[Panel] = [
        Bars("live: mean time to completion, s", bars),
        Curves(
            "live, all parts: percentage of tasks completed after ...",
            "seconds from arrival",
            [(s, _curve([r for r in rows if r.strategy == s])) for s in ORDER],
            is_log=True,
        ),
    ]
    IMAGE.parent.mkdir(parents=True, exist_ok=True)
    IMAGE.write_text(svg(panels), encoding="utf-8")


def _curve(rows: Sequence[Row]) -> list[tuple[float, float]]:
    took = sorted(s for row in rows for s in row.live.figures.took_s)
    steps = range(1, POINTS + 1)
    return [(took[len(took) * n // POINTS - 1], 100.0 * n / POINTS) for n in steps]


if __name__ == "__main__":
    sys.exit(main())
