"""Serving on a recorded slice: the product's scheduler in the reference simulator.

The same slice is run in the product's own simulator beside it: where both are right,
both say the same. Without the reference simulator the figures are those of our own.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.start_interval import coverage
from corral.scheduler.scheduler import Policy
from corral.sim.machine import failing, parse_fleet, speed_of
from corral.sim.measure import curve, figures
from corral.sim.simulation import Simulation
from corral.sim.trace import SLICE, read_trace
from corral.sim.workload import Workload

FLEET = "6x24GB,3x48GB@1.5,3x16GB@0.6"
DOWN_S = 300.0
SLO = 5.0
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Row:
    """One run; `lost` are tasks that did not end exactly once."""

    name: str
    load: float
    mean_s: float
    p99_s: float
    slo_pct: float
    loads: int
    lost: int
    redone: int
    curve: Sequence[Point] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """A run to make: an adapter's class, and the same for our own simulator."""

    name: str
    load: float
    adapter: str
    policy: Policy
    fails: bool = False


_GDSF, _LRU = Policy(order_max_tasks=1), Policy(order_max_tasks=1, is_lru=True)
_ADAPTER = "bench.serving_adapter:Corral"
RUNS = (
    Wanted("smith", 0.2, _ADAPTER, _GDSF),
    Wanted("smith, LRU", 0.2, "bench.serving_policies:CorralLru", _LRU),
    Wanted("smith", 0.1, _ADAPTER, _GDSF),
    Wanted("smith", 0.3, _ADAPTER, _GDSF),
    Wanted("smith, failures", 0.2, _ADAPTER, _GDSF, fails=True),
    Wanted(
        "least_loaded",
        0.2,
        "bench.serving_policies:LeastLoaded",
        Policy(order_max_tasks=1, strategy="least_loaded"),
    ),
    Wanted(
        "weighted_round_robin",
        0.2,
        "bench.serving_policies:WeightedRoundRobin",
        Policy(order_max_tasks=1, strategy="weighted_round_robin"),
    ),
)


class CountedEnds(dict[int, float]):
    """What has ended; `again` counts what had already."""

    again = 0

    def __setitem__(self, task: int, took_s: float) -> None:
        self.again += task in self
        super().__setitem__(task, took_s)


def reference(traces: Path) -> Any:
    """The reference simulator beside the traces; None where it is not."""
    path = traces.resolve().parent / "sim" / "serving.py"
    if not path.is_file():
        return None
    spec = importlib.util.spec_from_file_location("reference_serving", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def has_slice(traces: Path) -> bool:
    return (traces / SLICE).is_file()


def reference_rows(module: Any, traces: Path) -> Iterator[Row]:
    for wanted in RUNS:
        tasks, infer, models = module.read(str(traces), wanted.load, module.CLUSTER)
        yield measured(wanted, module, tasks, infer, models)


def measured(wanted: Wanted, module: Any, tasks: Any, infer: Any, models: Any) -> Row:
    """One run in the reference simulator."""
    end, count = tasks[-1].arrival, len(module.CLUSTER)
    fails = [
        (i, end * (i + 1) / (count + 2), end * (i + 1) / (count + 2) + DOWN_S)
        for i in range(count)
    ]
    run = module.Sim(
        tasks, infer, models, wanted.adapter, failures=fails if wanted.fails else []
    )
    run.done = CountedEnds()
    return _row_of(wanted, run.run(), tasks, infer)


def _row_of(wanted: Wanted, run: Any, tasks: Any, infer: Any) -> Row:
    took = sorted(run.done.values())
    in_time = sum(run.done[t.id] <= SLO * infer[t.id] for t in tasks)
    steps = range(1, 201)
    shares = [(took[max(0, len(took) * n // 200 - 1)], n / 2) for n in steps]
    return Row(
        wanted.name,
        wanted.load,
        sum(took) / len(took),
        took[int(0.99 * len(took))],
        100.0 * in_time / len(tasks),
        run.loads,
        len(tasks) - len(took) + run.done.again,
        run.requeued,
        shares,
    )


def own_rows(traces: Path, wanted: Sequence[Wanted] = RUNS) -> Iterator[Row]:
    """The same runs in the product's own simulator."""
    recorded = read_trace(traces)
    fleet = parse_fleet(FLEET)
    for each in wanted:
        work = recorded.filling(each.load, speed_of(fleet))
        yield _own_row(work, each)


def _own_row(work: Workload, wanted: Wanted) -> Row:
    fleet = parse_fleet(FLEET)
    if wanted.fails:
        fleet = failing(fleet, work.span_s, DOWN_S)
    record = Simulation(work, fleet, wanted.policy).run()
    found = figures(record)
    return Row(
        wanted.name,
        wanted.load,
        found.mean_s,
        found.p99_s,
        found.slo_pct,
        found.loads,
        found.left + found.expired + found.doubled,
        found.redone,
        curve(record),
    )


def keys(rows: Sequence[Row]) -> dict[str, float]:
    """The figures the rows are judged by."""
    by = {(row.name, row.load): row for row in rows}
    main, lru = by["smith", 0.2], by["smith, LRU", 0.2]
    fail = by["smith, failures", 0.2]
    return {
        "serving_mean_s": main.mean_s,
        "serving_slo_pct": main.slo_pct,
        "serving_loads": main.loads,
        "serving_p99_s": main.p99_s,
        "serving_lru_mean_s": lru.mean_s,
        "serving_lru_slo_pct": lru.slo_pct,
        "serving_lru_loads": lru.loads,
        "serving_load01_mean_s": by["smith", 0.1].mean_s,
        "serving_load03_mean_s": by["smith", 0.3].mean_s,
        "serving_fail_mean_s": fail.mean_s,
        "serving_fail_lost": fail.lost,
        "serving_least_loaded_mean_s": by["least_loaded", 0.2].mean_s,
        "serving_weighted_round_robin_mean_s": by["weighted_round_robin", 0.2].mean_s,
    }


def intervals(module: Any, traces: Path) -> dict[str, float]:
    """How often tasks start when it was foretold."""
    tasks, infer, models = module.read(str(traces), 0.2, module.CLUSTER)
    run = module.Sim(tasks, infer, models, "bench.start_interval:Foretelling").run()
    return coverage(run)
