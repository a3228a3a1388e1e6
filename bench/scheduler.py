"""`make bench-scheduler`: packing, serving, foretold starts, cost of a decision.

Traces are read from the folder TRACES, by default `../shared/data`; the reference
simulators from the folder `sim` beside it. What is not there is left out, and said.
Prints tables, writes `results/scheduler.json` and plots into `docs/img/`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import scheduler_cost, scheduler_packing, scheduler_serving
from bench.meter import BenchError
from bench.result import ROOT, write
from bench.scheduler_cost import Cost
from bench.scheduler_serving import Row
from corral.sim.chart import Bars, Curves, Panel, svg
from corral.sim.trace import SLICE

TARGET = "scheduler"
PACKAGES = ("corral",)
IMAGES = ROOT / "docs" / "img"
# (least, most); None where there is no such limit.
GOALS: Mapping[str, tuple[float | None, float | None]] = {
    "packing_default_130": (95.3, None),
    "packing_worst_gap_to_fgd": (None, 0.3),
    "serving_mean_s": (None, 45.0),
    "serving_slo_pct": (87.0, None),
    "serving_loads": (None, 1300),
    "serving_fail_lost": (None, 0),
    "start_interval_coverage_pct": (70.0, 90.0),
    "decision_p50_us_100": (None, 50.0),
    "decision_p50_us_1000": (None, 50.0),
    "decision_p50_us_10000": (None, 100.0),
    "decision_p99_us_100": (None, 200.0),
    "decision_p99_us_1000": (None, 200.0),
    "decision_p99_us_10000": (None, 500.0),
    "decisions_per_s_1000": (10_000, None),
}

Figures = dict[str, float]


def main() -> int:
    options = _options()
    console = Console(highlight=False)
    traces = Path(options.traces)
    figures: Figures = {}
    if not options.only or "serving" in options.only:
        figures |= _serving(traces, console)
    if not options.only or "packing" in options.only:
        figures |= _packing(traces, console)
    if not options.only or "cost" in options.only:
        figures |= _cost(console, options.decisions)
    console.print(_goals(figures))
    if options.only:
        console.print("a part alone: nothing is written")
    else:
        console.print(f"written to {write(TARGET, figures, PACKAGES)}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = os.environ.get("TRACES") or str(ROOT.parent / "shared" / "data")
    parser.add_argument("--traces", default=default, help="the folder of the traces")
    parser.add_argument(
        "--only", nargs="*", choices=("serving", "packing", "cost"), default=()
    )
    parser.add_argument("--decisions", type=int, default=20_000, help="to be timed")
    return parser.parse_args()


def _serving(traces: Path, console: Console) -> Figures:
    if not scheduler_serving.has_slice(traces):
        console.print(f"serving is left out: no {SLICE} in {traces}")
        return {}
    console.print("serving the recorded slice ...")
    own = list(scheduler_serving.own_rows(traces))
    module = scheduler_serving.reference(traces)
    if module is None:
        console.print("the reference simulator is not there: figures are our own's")
        console.print(_rows("our own simulator", own))
        return scheduler_serving.keys(own)
    rows = list(scheduler_serving.reference_rows(module, traces))
    console.print(_rows("reference simulator", rows))
    console.print(_rows("our own simulator", own))
    _draw("serving", _serving_panels(rows))
    said = scheduler_serving.keys(own)
    return {
        **scheduler_serving.keys(rows),
        "serving_own_mean_s": said["serving_mean_s"],
        "serving_own_loads": said["serving_loads"],
        "serving_own_fail_lost": said["serving_fail_lost"],
        **scheduler_serving.intervals(module, traces),
    }


def _serving_panels(rows: Sequence[Row]) -> list[Panel]:
    main = [row for row in rows if row.load == 0.2]
    return [
        Bars(
            "mean time to completion at load 0.2, s", [(r.name, r.mean_s) for r in main]
        ),
        Curves(
            "percentage of tasks completed after ... at load 0.2",
            "seconds from arrival",
            [(row.name, row.curve) for row in main],
            is_log=True,
        ),
    ]


def _packing(traces: Path, console: Console) -> Figures:
    try:
        found = scheduler_packing.figures(traces, say=console.print)
    except BenchError as error:
        console.print(f"packing is left out: {error}")
        return {}
    console.print(scheduler_packing.table(found, traces))
    _draw("packing", _packing_panels(found))
    return found


def _packing_panels(found: Figures) -> list[Panel]:
    named = [(w, found[f"packing_{w}_130"]) for w in scheduler_packing.WORKLOADS]
    return [Bars("GPU given out after 130 % came, percent", named)]


def _cost(console: Console, decisions: int) -> Figures:
    console.print("timing decisions ...")
    costs = [
        scheduler_cost.decision_cost(size, load, decisions)
        for size in scheduler_cost.SIZES
        for load in scheduler_cost.LOADS
    ]
    console.print(_costs(costs))
    _draw("decision-cost", _cost_panels(costs))
    return scheduler_cost.keys(costs)


def _cost_panels(costs: Sequence[Cost]) -> list[Panel]:
    names = [f"{c.workers:,} workers, load {c.load:g}" for c in costs]
    pairs = list(zip(names, costs, strict=True))
    return [
        Bars("a decision, p50, microseconds", [(n, c.p50_us) for n, c in pairs]),
        Bars("a decision, p99, microseconds", [(n, c.p99_us) for n, c in pairs]),
    ]


def _draw(name: str, panels: Sequence[Panel]) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    (IMAGES / f"{name}.svg").write_text(svg(panels), encoding="utf-8")


def _rows(title: str, rows: Sequence[Row]) -> Table:
    heads = ("policy", "load", "mean s", "p99 s", "SLO %", "loads", "redone", "lost")
    table = Table(*heads, title=title)
    for row in rows:
        figures = (row.mean_s, row.p99_s, row.slo_pct)
        counts = (row.loads, row.redone, row.lost)
        cells = [f"{x:.1f}" for x in figures] + [str(n) for n in counts]
        table.add_row(row.name, f"{row.load:g}", *cells)
    return table


def _costs(costs: Sequence[Cost]) -> Table:
    table = Table("workers", "load", "p50 us", "p99 us", "decisions/s")
    for cost in costs:
        figures = (cost.p50_us, cost.p99_us, cost.per_s)
        cells = [f"{x:,.0f}" for x in figures]
        table.add_row(f"{cost.workers:,}", f"{cost.load:g}", *cells)
    return table


def _goals(figures: Figures) -> Table:
    table = Table("figure", "value", "goal", "")
    for key, value in figures.items():
        least, most = GOALS.get(key, (None, None))
        words = [f">= {least:g}"] if least is not None else []
        words += [f"<= {most:g}"] if most is not None else []
        is_met = (least is None or value >= least) and (most is None or value <= most)
        verdict = ("met" if is_met else "NOT MET") if words else ""
        table.add_row(key, f"{value:.4g}", " and ".join(words), verdict)
    return table


if __name__ == "__main__":
    sys.exit(main())
