"""Workloads and fleets: from words, files, numbers; what is wrong with them."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from corral.errors import InvalidField
from corral.sim.machine import Machine, parse_fleet, speed_of
from corral.sim.trace import SLICE, SLICE_MODELS, read_trace
from corral.sim.workload import Model, Workload, synthetic, workload

TRACE = """at_s,job_type,model,priority,units,run_s,model_gb,load_s
100,draw,sd,5,4,12.5,8,20
90,draw,sd,,,3,,
95,echo,,,,0.5,,
"""


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    data = text.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def test_a_fleet_is_read_from_words() -> None:
    fleet = parse_fleet("2x24GB,48gb@1.5,1x80GB@2/4")
    assert fleet == [
        Machine("w001", 24576.0),
        Machine("w002", 24576.0),
        Machine("w003", 49152.0, 1.5),
        Machine("w004", 81920.0, 2.0, 4),
    ]
    assert speed_of(fleet) == 11.5


@pytest.mark.parametrize("text", ["", "2x", "24", "0x24GB", "24GB@0", "24GB@x", "x,y"])
def test_a_fleet_of_other_words_is_refused(text: str) -> None:
    with pytest.raises(InvalidField, match="2x24GB"):
        parse_fleet(text)


def test_a_trace_is_read_in_the_order_of_time(tmp_path: Path) -> None:
    for name in ("trace.csv", "trace.csv.gz"):
        found = read_trace(written(tmp_path, TRACE, name))
        tasks = [a.task for a in found.arrivals]
        assert [round(a.at) for a in found.arrivals] == [0, 5, 10]
        assert [t.job_type for t in tasks] == ["draw", "echo", "draw"]
        assert [t.model for t in tasks] == ["sd", None, "sd"]
        assert (tasks[2].priority, tasks[2].units) == (5, 4)
        assert [a.run_s for a in found.arrivals] == [3.0, 0.5, 12.5]
        assert found.models == (Model("sd", 8192.0, 20.0),)


def test_the_recorded_slice_is_read_with_its_models(tmp_path: Path) -> None:
    rows = "arrival_s,model,infer_s,priority,images\n7,m,9.5,1,2\n8,m,1.5,0,\n"
    written(tmp_path, rows, SLICE)
    written(tmp_path, "model,size_gb,load_s\nm,4,13\n", SLICE_MODELS)
    found = read_trace(tmp_path)
    assert [a.task.priority for a in found.arrivals] == [10, 0]
    assert [a.task.units for a in found.arrivals] == [2, 1]
    assert found.models == (Model("m", 4096.0, 13.0),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("at_s,model\n1,m\n", "no column run_s"),
        ("", "no column at_s and run_s"),
        ("at_s,run_s\n", "no column"),
        ("at_s,run_s\n1,soon\n", "row 1: .*soon"),
        ("at_s,run_s\n1\n", "row 1"),
    ],
)
def test_a_trace_that_lacks_something_is_refused(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(InvalidField, match=words):
        read_trace(written(tmp_path, text))


def test_no_workload_is_made_of_nothing_or_unknown_models() -> None:
    with pytest.raises(InvalidField, match="no task"):
        workload([])
    with pytest.raises(InvalidField, match="model-"):
        workload(synthetic(1, tasks=5).arrivals, [])


def test_a_seed_gives_the_same_workload_again_and_another_another() -> None:
    assert synthetic(1, tasks=50) == synthetic(1, tasks=50)
    assert synthetic(1, tasks=50) != synthetic(2, tasks=50)


def test_time_is_compressed_to_fill_a_share() -> None:
    work = synthetic(1, tasks=200)
    filled = work.filling(0.5, 4.0)
    busy_s = sum(a.run_s for a in filled.arrivals)
    assert busy_s / 4.0 / filled.span_s == pytest.approx(0.5)
    assert work.faster(2.0).span_s == pytest.approx(work.span_s / 2)


def test_waits_of_a_task_are_not_compressed() -> None:
    arrivals = synthetic(1, tasks=1).arrivals
    task = replace(arrivals[0].task, arrived=100.0, run_after=130.0, deadline=160.0)
    first = replace(task, task_id="first", arrived=50.0, run_after=0.0, deadline=None)
    work = Workload(
        (replace(arrivals[0], task=first), replace(arrivals[0], task=task))
    ).faster(10.0)
    moved = work.arrivals[1].task
    assert moved.arrived == pytest.approx(5.0)
    assert moved.run_after == pytest.approx(35.0)
    assert moved.deadline == pytest.approx(65.0)
