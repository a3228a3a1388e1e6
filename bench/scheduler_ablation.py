"""What each part of the default policy is worth: the same runs without it.

Not part of `make bench-scheduler`; it prints the table of docs/design/scheduler.md.
Two loads of the recorded slice, three synthetic workloads, our own simulator.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.result import ROOT
from bench.scheduler_serving import FLEET, has_slice
from corral.scheduler.decide import cost as smith
from corral.scheduler.decide import order as ordering
from corral.scheduler.learn import estimate
from corral.scheduler.policy import Policy
from corral.scheduler.world import line as family
from corral.sim.machine import parse_fleet, speed_of
from corral.sim.measure import figures
from corral.sim.simulation import Simulation
from corral.sim.trace import read_trace
from corral.sim.workload import Workload, synthetic

SYNTHETIC_FLEET = "6x24GB,3x48GB@1.5,3x20GB@0.6"
Change = tuple[Any, str, Any]


def _nothing_lost(
    self: smith.CostModel, worker: Any, model: str, victims: Sequence[Any]
) -> Any:
    found = _ROOM_FOR(self, worker, model, victims)
    return None if found is None else (found[0], 0.0)


_ROOM_FOR: Callable[..., Any] = smith.CostModel.room_for
_PLAIN = Policy(order_max_tasks=1)
ABLATIONS: Sequence[tuple[str, Policy, Sequence[Change]]] = (
    ("smith, as it is", _PLAIN, ()),
    ("LRU instead of GreedyDual", Policy(order_max_tasks=1, is_lru=True), ()),
    (
        "a load counts for one task",
        _PLAIN,
        ((smith, "BATCH", 1), (ordering, "BATCH", 1)),
    ),
    (
        "a load counts for eight",
        _PLAIN,
        ((smith, "BATCH", 8), (ordering, "BATCH", 8)),
    ),
    (
        "nothing is left to those who have the model",
        _PLAIN,
        ((smith.CostModel, "_absorbed", lambda *told: 0.0),),
    ),
    (
        "what is dropped costs nothing",
        _PLAIN,
        ((smith.CostModel, "room_for", _nothing_lost),),
    ),
    ("weights double in 2 minutes", _PLAIN, ((family, "AGE_S", 120.0),)),
    ("weights hardly grow", _PLAIN, ((family, "AGE_S", 1e6),)),
    ("demand of 15 minutes", _PLAIN, ((estimate, "_HALF_LIFE_S", 900.0),)),
    ("earliest completion", Policy(order_max_tasks=1, strategy="least_loaded"), ()),
)


@contextmanager
def changed(changes: Sequence[Change]) -> Iterator[None]:
    """The product with some of its parts replaced, for a while."""
    before = [(where, name, getattr(where, name)) for where, name, _ in changes]
    for where, name, value in changes:
        setattr(where, name, value)
    try:
        yield
    finally:
        for where, name, value in before:
            setattr(where, name, value)


def workloads(traces: Path) -> Iterator[tuple[str, Workload, str]]:
    if has_slice(traces):
        recorded = read_trace(traces)
        for load in (0.2, 0.3):
            filled = recorded.filling(load, speed_of(parse_fleet(FLEET)))
            yield f"slice {load:g}", filled, FLEET
    for seed, load in ((1, 0.3), (2, 0.5), (3, 0.6)):
        work = synthetic(seed, 3000)
        speed = speed_of(parse_fleet(SYNTHETIC_FLEET))
        yield f"seed {seed}, {load:g}", work.filling(load, speed), SYNTHETIC_FLEET


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = str(ROOT.parent / "shared" / "data")
    parser.add_argument("--traces", default=default)
    some = list(workloads(Path(parser.parse_args().traces)))
    print("| mean s / in time % / loads |", *(f"{name} |" for name, _, _ in some))
    print("|---" * (len(some) + 1) + "|")
    for name, policy, changes in ABLATIONS:
        cells = []
        with changed(changes):
            for _, work, fleet in some:
                found = figures(Simulation(work, parse_fleet(fleet), policy).run())
                cells.append(
                    f"{found.mean_s:.1f} / {found.slo_pct:.1f} / {found.loads}"
                )
        print(f"| {name} |", *(f"{cell} |" for cell in cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
