"""The GPU memory a task takes beside its model, from the runner to the report."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from corral.worker.runner.gpu_memory import CARDS, LEDGER, WorkingSet
from tests.unit.worker.conftest import Bench, item, value

MakeBench = Callable[..., Bench]
SLEEPER = "corral.worker.builtin:SleepWorker"
MB = 2**20


class StandInCuda:
    """What PyTorch tells of two cards."""

    def __init__(self) -> None:
        self.now, self.peak, self.is_up = [0, 0], [0, 0], True

    def is_initialized(self) -> bool:
        return self.is_up

    def device_count(self) -> int:
        return len(self.now)

    def memory_allocated(self, card: int) -> int:
        return self.now[card]

    def max_memory_allocated(self, card: int) -> int:
        return self.peak[card]

    def reset_peak_memory_stats(self, card: int) -> None:
        self.peak[card] = self.now[card]

    def use(self, card: int, size: int) -> None:
        self.peak[card] = max(self.peak[card], self.now[card] + size)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> StandInCuda:
    made = StandInCuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=made))
    return made


def test_what_a_task_takes_on_all_cards_is_told_without_its_model(
    cuda: StandInCuda,
) -> None:
    cuda.now = [4000 * MB, 1000 * MB]
    working = WorkingSet(object())
    assert working.is_known
    working.begin()
    cuda.use(0, 600 * MB)
    cuda.use(1, 40 * MB)
    assert working.end() == 640.0
    working.begin()
    assert working.end() == 0.0


def test_before_cuda_is_used_nobody_can_tell(cuda: StandInCuda) -> None:
    cuda.is_up = False
    working = WorkingSet(object())
    working.begin()
    assert working.end() is None


def test_a_sleeper_takes_memory_of_a_simulated_card_and_reports_it(
    bench: MakeBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CARDS, "SIM-1")
    monkeypatch.setenv(LEDGER, str(tmp_path))
    worker = bench(SLEEPER)
    one, two = worker.run(item({"memory_mb": 512}), item({"seconds": 0}))
    assert (one.kind, one.memory_mb) == ("completed", 512.0)
    assert (two.kind, two.memory_mb) == ("completed", None)
    assert value(two) == {"slept": 0.0}
    assert list((tmp_path / "SIM-1").iterdir()) == []


def test_a_class_that_cannot_tell_fails_no_task(bench: MakeBench) -> None:
    worker = bench("Vague")
    (outcome,) = worker.run(item({}))
    assert (outcome.kind, outcome.memory_mb) == ("completed", None)


def test_a_class_without_a_hook_reports_no_memory(bench: MakeBench) -> None:
    worker = bench("corral.worker.builtin:EchoWorker")
    (outcome,) = worker.run(item({"message": "hello"}))
    assert outcome.memory_mb is None
