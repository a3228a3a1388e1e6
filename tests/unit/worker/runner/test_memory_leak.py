"""Memory that does not come back is noticed, and its runner started anew when idle."""

from __future__ import annotations

from collections.abc import Callable

import psutil
import pytest

from corral.worker.runner.gpu_memory import GpuMemoryReading
from corral.worker.runner.memory_leak import LEAST_MB, MemoryLeakCheck
from corral.worker.supervisor.batch import OrderBatch
from corral.worker.supervisor.held_models import RunnerModels
from tests.unit.worker.conftest import Bench, item, value
from tests.unit.worker.supervised import until

MakeBench = Callable[..., Bench]


class Machine:
    """Memory whose figures are set by hand."""

    def __init__(self) -> None:
        self.used = 100.0
        self.cached = 0.0
        self.on_cards = True
        self.trims = 0

    def read(self) -> GpuMemoryReading:
        return GpuMemoryReading(self.on_cards, self.used, self.used + self.cached)

    def trim(self, *, is_thorough: bool) -> None:
        self.trims += is_thorough
        self.cached = 0.0


class Runner:
    def __init__(self) -> None:
        self.machine = Machine()
        self.wear = MemoryLeakCheck(self.machine.read, self.machine.trim)

    def load(self, name: str, took: float, told: float | None = None) -> None:
        before = self.wear.loading()
        self.machine.used += took
        self.wear.loaded(name, before, told)

    def drop(self, name: str, gives: float) -> None:
        before = self.wear.dropping(name)
        self.machine.used -= gives
        self.wear.dropped(name, before)


@pytest.fixture
def runner() -> Runner:
    return Runner()


def test_what_comes_back_is_no_loss(runner: Runner) -> None:
    runner.load("a", 1000, told=1000)
    runner.machine.cached = 5000
    runner.drop("a", 950)
    assert (runner.machine.trims, runner.wear.wait_s()) == (0, None)
    assert runner.wear.verdict() is None


def test_a_loss_is_told_once_with_its_model_and_its_size(runner: Runner) -> None:
    runner.load("a", 1000, told=1000)
    runner.drop("a", 200)
    wait_s = runner.wear.wait_s()
    assert wait_s is not None
    assert wait_s > 0
    worn = runner.wear.verdict()
    assert worn is not None
    assert (worn.model, worn.left_mb, worn.size_mb) == ("a", 800.0, 1000.0)
    assert runner.wear.verdict() is None


def test_what_tasks_beside_it_used_meanwhile_is_not_lost(runner: Runner) -> None:
    runner.load("a", 1000, told=1000)
    before = runner.wear.dropping("a")
    runner.machine.used += 700 - 1000
    runner.wear.dropped("a", before)
    assert runner.wear.wait_s() is not None
    runner.machine.used -= 700
    assert runner.wear.verdict() is None


def test_models_that_come_and_go_after_a_loss_do_not_hide_it(runner: Runner) -> None:
    runner.load("a", 1000, told=1000)
    runner.load("b", 500, told=500)
    runner.drop("a", 0)
    runner.load("c", 3000, told=3000)
    runner.drop("b", 500)
    worn = runner.wear.verdict()
    assert worn is not None
    assert (worn.model, worn.left_mb) == ("a", 1000.0)


def test_libraries_that_come_with_the_first_load_are_not_a_models(
    runner: Runner,
) -> None:
    runner.load("told", 1300, told=1000)
    runner.drop("told", 1000)
    assert runner.wear.wait_s() is None
    fresh = Runner()
    fresh.load("untold", 1300)
    fresh.drop("untold", 1000)
    assert fresh.wear.wait_s() is None
    fresh.load("untold", 1000)
    fresh.drop("untold", 0)
    assert fresh.wear.verdict() is not None


def test_small_models_cost_no_look(runner: Runner) -> None:
    runner.load("tiny", LEAST_MB / 2, told=LEAST_MB / 2)
    runner.drop("tiny", 0)
    assert (runner.machine.trims, runner.wear.wait_s()) == (0, None)


def test_a_load_that_is_the_first_use_of_a_card_took_all_that_is_there(
    runner: Runner,
) -> None:
    runner.machine.on_cards = False
    before = runner.wear.loading()
    runner.machine.on_cards, runner.machine.used = True, 900.0
    runner.wear.loaded("a", before, 900)
    runner.drop("a", 0)
    worn = runner.wear.verdict()
    assert worn is not None
    assert worn.left_mb == 900.0


def test_a_runner_that_lost_memory_is_started_anew_when_it_is_idle(
    bench: MakeBench,
) -> None:
    worker = bench("Leaky")
    holdings = RunnerModels(lambda: worker.pool.runners, lambda: worker.pool.leaks)
    assert value(worker.run(item({}, model="sound"))[0]) == ["sound"]
    (first,) = worker.pool.runners
    held = first.models["sound"]
    assert (held.precision, held.layers, held.peaks) == ("int8", {"cpu": 3}, {})

    def execute(model: str, *unload: str) -> list[str]:
        (outcome,) = worker.execute(
            OrderBatch([item({}, model=model)], unload)
        ).outcomes
        return list(value(outcome))

    assert execute("leaky", "sound") == ["leaky"]
    assert execute("sound", "leaky") == ["sound"]
    until(lambda: worker.pool.leaks[0])
    restarts, worn = worker.pool.leaks
    assert worn is not None
    assert (restarts, worn.model, worn.size_mb) == (1, "leaky", 150.0)
    assert worn.left_mb == pytest.approx(150, abs=30)
    # What waits meanwhile waits for the new one; nothing fails of it.
    assert execute("sound") == ["sound"]
    (second,) = worker.pool.runners
    assert second.pid != first.pid
    assert not psutil.pid_exists(first.pid)
    assert psutil.Process(second.pid).memory_info().rss < 300 << 20
    assert (worker.pool.failures, worker.pool.error) == (0, None)
    word = holdings.word()
    assert word is not None
    assert (word.restarts, word.worn) == (1, worn)
    assert [model.name for model in word.held] == ["sound"]
