"""The work of the live comparison, on a slice made up for it."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest

from bench.live_work import FLEET, LOAD, MODELS, Work, in_order, parts, simulated
from bench.meter import BenchError
from corral.sim.machine import parse_fleet, speed_of
from corral.sim.trace import SLICE, SLICE_MODELS
from corral.sim.workload import synthetic

STRATEGIES = ("smith", "least_loaded", "weighted_round_robin")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More models than are compared; sizes as the cards allow."""
    folder, made = tmp_path_factory.mktemp("traces"), synthetic(1, 3_000, MODELS + 5)
    with gzip.open(folder / SLICE, "wt", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["arrival_s", "model", "infer_s", "priority", "images"])
        for a in made.arrivals:
            is_high = int(a.task.priority > 0)
            rows.writerow([a.at, a.task.model, a.run_s, is_high, a.task.units])
    with (folder / SLICE_MODELS).open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["model", "size_gb", "load_s"])
        for n, model in enumerate(made.models):
            rows.writerow([model.name, 4 + n % 10, model.load_s])
    return folder


@pytest.fixture(scope="module")
def works(traces: Path) -> list[Work]:
    return list(parts(traces, 3, 600, 30.0))


def test_parts_are_different_and_fill_the_workers_as_they_should(
    works: list[Work],
) -> None:
    assert len({work.arrivals[0].task.task_id for work in works}) == 3
    for work in works:
        assert len(work.arrivals) == 600
        assert len(work.models) == len(work.lessons) == MODELS
        busy_s = sum(a.run_s for a in work.arrivals)
        span_s = work.arrivals[-1].at - work.arrivals[0].at
        assert span_s == pytest.approx(30.0)
        assert busy_s / span_s / speed_of(parse_fleet(FLEET)) == pytest.approx(LOAD)


def test_strategies_come_out_in_the_same_order_as_ever(works: list[Work]) -> None:
    for work in works:
        assert in_order([simulated(work, s).mean_s for s in STRATEGIES])


def test_only_the_tasks_that_count_are_counted(works: list[Work]) -> None:
    found = simulated(works[0], "weighted_round_robin")
    assert len(found.took_s) == 600
    assert 0 < found.loads <= 600


def test_without_the_slice_it_says_which_folder_to_name(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="TRACES"):
        list(parts(tmp_path, 3, 600, 30.0))
