"""Tasks under a profiler: the report is left, the outcome is as without."""

from __future__ import annotations

import cProfile
import gzip
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from corral.wire.orders import AttemptOutcome, Item
from corral.worker.protocol import LeftFilesFrame
from corral.worker.runner.profile import MOST_BYTES, Profile
from corral.worker.supervisor.batch import OrderBatch
from corral.worker.supervisor.execution import Execution
from tests.unit.worker.conftest import Bench, item, value

MakeBench = Callable[..., Bench]
SLEEPER = "corral.worker.builtin:SleepWorker"
NAP = {"seconds": 0.05}


def run(
    worker: Bench, *items: Item
) -> tuple[list[AttemptOutcome], list[LeftFilesFrame]]:
    runner = worker.pool.acquire()
    try:
        execution = Execution(OrderBatch(items), runner, lambda _: None, overrun_s=30.0)
        return execution.run().outcomes, execution.left
    finally:
        worker.pool.release(runner)


def test_a_runner_leaves_the_report_and_the_same_result(bench: MakeBench) -> None:
    profiled, plain = item(NAP, profile="python"), item(NAP)
    outcomes, left = run(bench(SLEEPER), profiled, plain)
    assert [value(o) for o in outcomes] == [{"slept": 0.05}] * 2
    (report,) = left
    assert report.key == profiled.key
    assert "SleepWorker.run" in report.files["profile.txt"].decode()
    assert report.files["profile.html"].lstrip().startswith(b"<!DOCTYPE html>")


def test_a_task_that_fails_leaves_its_report_too(bench: MakeBench) -> None:
    sad = item({**NAP, "fail": "too bad"}, profile="python")
    outcomes, left = run(bench(SLEEPER), sad)
    error = outcomes[0].error
    assert error is not None
    assert error.message == "RuntimeError: too bad"
    # What we put around the user's code is in no traceback.
    assert error.traceback is not None
    assert "corral/worker/runner/profile" not in error.traceback
    assert "SleepWorker.run" in left[0].files["profile.txt"].decode()


@pytest.mark.spec("D16")
def test_a_memory_profile_says_which_line_holds_what(bench: MakeBench) -> None:
    hoarder = "tests.unit.worker.sample_workers:Hoarder"
    tasks = [item(5_000_000, profile="memory"), item(100)]
    outcomes, left = run(bench(hoarder), *tasks)
    assert [value(o) for o in outcomes] == [5_000_000, 5_000_100]
    (report,) = left
    assert list(report.files) == ["profile.txt"]
    peak, _, _, first, *_ = report.files["profile.txt"].decode().splitlines()
    most_mb, held_mb = (float(part.split()[0]) for part in peak.split(","))
    assert 10 < most_mb < 20, "it had as much again for a moment"
    assert 5 <= held_mb < 10
    size, _, count, where = first.split(maxsplit=3)
    assert float(size) >= 5
    assert int(count) >= 1
    assert "sample_workers.py:" in where


def test_who_is_profiled_runs_alone(bench: MakeBench) -> None:
    outcomes, left = run(bench("Batcher"), item("a", profile="python"), item("b"))
    assert [value(o) for o in outcomes] == [["a", 1], ["b", 1]]
    assert len(left) == 1


def test_where_pytorch_is_not_loaded_python_is_looked_at(bench: MakeBench) -> None:
    outcomes, left = run(bench(SLEEPER), item(NAP, profile="torch"))
    assert value(outcomes[0]) == {"slept": 0.05}
    text = left[0].files["profile.txt"].decode()
    assert text.startswith("PyTorch is not loaded in this worker")
    assert "SleepWorker.run" in text


def test_pytorch_tells_its_operators_and_a_trace() -> None:
    import torch

    def work(size: int) -> float:
        return float((torch.ones(size, size) @ torch.ones(size, size)).sum())

    profile = Profile("torch")
    assert profile.call(work, 16) == 16.0**3
    files = profile.files()
    assert "aten::mm" in files["profile.txt"].decode()
    trace = json.loads(gzip.decompress(files["trace.json.gz"]))
    assert any(event.get("name") == "aten::mm" for event in trace["traceEvents"])


def test_without_pyinstrument_every_python_has_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyinstrument", None)
    profile = Profile("python")
    assert profile.call(sorted, [2, 1]) == [1, 2]
    files = profile.files()
    assert "sorted" in files["profile.txt"].decode()
    assert set(files) == {"profile.txt", "profile.pstats"}


def test_a_profiler_that_does_not_start_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Busy:
        def enable(self) -> None:
            raise ValueError("another tool is at work")

    monkeypatch.setitem(sys.modules, "pyinstrument", None)
    monkeypatch.setattr(cProfile, "Profile", Busy)
    profile = Profile("python")
    assert profile.call(sorted, [2, 1]) == [1, 2]
    said = "the profiler did not start: another tool is at work\n"
    assert profile.files() == {"profile.txt": said.encode()}
    assert capsys.readouterr().err == said


def test_what_is_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyinstrument

    def long(_self: Any) -> str:
        return "x" * (MOST_BYTES + 1)

    monkeypatch.setattr(pyinstrument.Profiler, "output_html", long)
    profile = Profile("python")
    profile.call(sorted, [])
    files = profile.files()
    assert list(files) == ["profile.txt"]
    assert files["profile.txt"].startswith(b"profile.html is too long to be kept\n")
