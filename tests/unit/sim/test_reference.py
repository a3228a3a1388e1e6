"""The product's scheduler in the reference simulator, on recorded requests.

Traces and simulator are not part of the project: without them there is nothing to
compare with, and only the test of the adapter is here (`make bench-scheduler` says so).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from bench import scheduler_serving
from bench.scheduler_serving import RUNS, Wanted
from corral.sim.machine import failing, parse_fleet, speed_of
from corral.sim.measure import figures
from corral.sim.simulation import Simulation
from corral.sim.trace import read_trace
from corral.sim.workload import workload
from tests.property_examples import STRICT

ROOT = Path(__file__).resolve().parents[3]
TRACES = Path(os.environ.get("TRACES") or ROOT.parent / "shared" / "data")
SOME = 1_500 if STRICT else 700


HAS_TRACES = scheduler_serving.has_slice(TRACES) and (
    (TRACES.parent / "sim" / "serving.py").is_file()
)


@pytest.fixture(scope="module")
def module() -> Any:
    return scheduler_serving.reference(TRACES)


def wanted(name: str) -> Wanted:
    return next(run for run in RUNS if run.name == name and run.load == 0.2)


def reference(module: Any, run: Wanted) -> scheduler_serving.Row:
    tasks, infer, models = module.read(str(TRACES), run.load, module.CLUSTER)
    return scheduler_serving.measured(run, module, tasks[:SOME], infer[:SOME], models)


@pytest.mark.parametrize("name", ["smith", "smith, failures"])
def both_simulators_agree_and_nothing_is_lost(module: Any, name: str) -> None:
    run = wanted(name)
    theirs = reference(module, run)
    fleet = parse_fleet(scheduler_serving.FLEET)
    whole = read_trace(TRACES).filling(run.load, speed_of(fleet))
    work = workload(whole.arrivals[:SOME], whole.models)
    if run.fails:
        fleet = failing(fleet, work.span_s, scheduler_serving.DOWN_S)
    ours = figures(Simulation(work, fleet, run.policy).run())
    assert theirs.lost == ours.left == ours.doubled == 0
    assert ours.mean_s == pytest.approx(theirs.mean_s, rel=0.08)
    assert ours.loads == pytest.approx(theirs.loads, rel=0.1)


def the_default_beats_the_others_as_they_beat_each_other(module: Any) -> None:
    names = ["smith", "least_loaded", "weighted_round_robin"]
    means = [reference(module, wanted(name)).mean_s for name in names]
    assert means == sorted(means)


if HAS_TRACES:
    test_both_simulators_agree = both_simulators_agree_and_nothing_is_lost
    test_the_default_is_best = the_default_beats_the_others_as_they_beat_each_other


def test_the_adapter_is_no_scheduler_of_its_own() -> None:
    text = (ROOT / "bench" / "serving_adapter.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 100
