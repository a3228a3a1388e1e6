"""Models from the runner to the report: loaded, timed, dropped, told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from corral.core.tasks.job_type import MODEL_TASK
from corral.wire.orders import Item
from corral.worker.manager_link import ManagerLink
from corral.worker.pool.runner_pool import RunnerPool
from corral.worker.pool.runner_process import Exited, RunnerProcess, RunnerSpec
from corral.worker.supervisor.batch import OrderBatch
from corral.worker.supervisor.execution import Execution
from corral.worker.supervisor.held_models import RunnerModels
from corral.worker.supervisor.reports import Reporter
from tests.unit.worker.conftest import Bench, item, value
from tests.unit.worker.standin_manager import WORKER, StandInManager
from tests.unit.worker.warm_runners import launch

MakeBench = Callable[..., Bench]
SLEEPER = "corral.worker.builtin:SleepWorker"
MODELS = {"a": {"size_mb": 100, "load_s": 0.1}, "b": {"size_mb": 50}}


def draw(model: str | None, seconds: float = 0.0, **more: Any) -> Item:
    return item({"seconds": seconds}, model=model, **more)


def held_by(worker: Bench) -> dict[str, float | None]:
    (runner,) = worker.pool.runners
    return {name: model.size_mb for name, model in runner.models.items()}


def test_a_load_is_no_part_of_its_tasks_duration(bench: MakeBench) -> None:
    worker = bench(SLEEPER, models=MODELS)
    first, second = worker.run(draw("a"), draw("a"))
    assert first.load_s >= 0.1
    assert first.duration_s < first.load_s
    assert second.load_s == 0.0
    assert held_by(worker) == {"a": 100.0}


def test_a_timeout_begins_when_the_model_is_there(bench: MakeBench) -> None:
    worker = bench(SLEEPER, models={"slow": {"load_s": 1.5}})
    quick, late = worker.run(
        draw("slow", timeout_s=1.0), item({"hang": True}, model="slow", timeout_s=0.3)
    )
    assert (quick.kind, late.kind) == ("completed", "timed_out")
    assert quick.load_s >= 1.5
    assert late.duration_s >= 0.3


def test_a_load_that_takes_too_long_ends_its_task(bench: MakeBench) -> None:
    worker = bench(SLEEPER, models={"stuck": {"load_s": 60}})
    worker.warm()
    runner = worker.pool.acquire()
    batch = OrderBatch([draw("stuck", timeout_s=30)])
    execution = Execution(batch, runner, lambda _: None, model_load_s=0.2)
    (outcome,) = execution.run().outcomes
    worker.pool.release(runner)
    assert outcome.kind == "timed_out"
    assert outcome.error is not None
    assert outcome.error.kind == "model_load_timeout"
    assert "stuck took longer than 0.2 s" in outcome.error.message


def test_an_order_drops_what_it_says_before_it_loads(bench: MakeBench) -> None:
    worker = bench(SLEEPER, models=MODELS)
    worker.run(draw("b"))
    assert held_by(worker) == {"b": 50.0}
    worker.execute(OrderBatch([draw("a")], ["b", "never there"]))
    assert held_by(worker) == {"a": 100.0}


def test_a_load_that_fails_fails_its_task_and_nothing_is_held(
    bench: MakeBench,
) -> None:
    worker = bench("Weights")
    bad, good = worker.run(draw("bad"), draw("good"))
    assert (bad.kind, good.kind) == ("failed", "completed")
    assert bad.error is not None
    assert bad.error.message == "OSError: no weights of bad"
    assert "shelf.py" not in (bad.error.traceback or "")
    assert held_by(worker) == {"good": None}


def test_a_task_of_corral_itself_loads_and_drops_without_the_class(
    bench: MakeBench,
) -> None:
    worker = bench(SLEEPER, models=MODELS)
    ask = draw("a")
    ask.job_type = MODEL_TASK
    assert value(worker.run(ask)[0]) == {"models": ["a"]}
    forget = draw(None)
    forget.job_type = MODEL_TASK
    (outcome,) = worker.execute(OrderBatch([forget], ["a"])).outcomes
    assert value(outcome) == {"models": []}


@pytest.fixture
def pair() -> Iterator[RunnerPool]:
    """Two runners of one worker."""
    pool = RunnerPool(
        RunnerSpec(SLEEPER, {"models": MODELS}, launch=launch), 2, lambda: None
    )
    pool.start()
    yield pool
    pool.kill()
    pool.join()


def run_on(pool: RunnerPool, model: str, *, keep: bool = False) -> RunnerProcess:
    runner = pool.acquire(model=model).runner
    (outcome,) = (
        Execution(OrderBatch([draw(model)]), runner, lambda _: None).run().outcomes
    )
    assert outcome.kind == "completed"
    if not keep:
        pool.release(runner)
    return runner


def test_of_several_runners_the_one_that_has_the_model_is_used(
    pair: RunnerPool,
) -> None:
    first = run_on(pair, "a", keep=True)
    second = run_on(pair, "b")
    pair.release(first)
    for _ in range(3):
        assert run_on(pair, "a") is first
        assert run_on(pair, "b") is second


def test_free_runners_have_dropped_a_model_before_another_loads(
    pair: RunnerPool,
) -> None:
    first = run_on(pair, "a", keep=True)
    second = run_on(pair, "b", keep=True)
    pair.release(first)
    pair.unload(["a"], besides=second)
    assert first.models == {}
    pair.unload(["a"], besides=second)
    pair.release(second)


def test_the_word_of_a_worker_counts_copies_and_forgets_the_dead(
    pair: RunnerPool,
) -> None:
    holdings = RunnerModels(lambda: pair.runners)
    first = run_on(pair, "a", keep=True)
    assert first.sizes == {"a": 100.0, "b": 50.0}
    run_on(pair, "a")
    pair.release(first)
    word = holdings.word()
    assert word is not None
    (model,) = word.held
    assert (model.name, model.size_mb, model.copies) == ("a", 100.0, 2)
    assert word.sizes == {"a": 100.0, "b": 50.0}
    first.kill()
    while not isinstance(first.next_event(60), Exited):
        pass
    later = holdings.word()
    assert later is not None
    assert [(m.name, m.copies) for m in later.held] == [("a", 1)]
    assert later.number > word.number


def test_a_worker_without_models_has_nothing_to_say(bench: MakeBench) -> None:
    worker = bench("Doubler")
    worker.run(item(1))
    assert RunnerModels(lambda: worker.pool.runners).word() is None


def test_what_is_held_is_reported_until_it_is_answered_and_not_again(
    bench: MakeBench,
) -> None:
    worker = bench(SLEEPER, models=MODELS)
    worker.run(draw("b"))
    manager = StandInManager()
    link = ManagerLink(manager.url, "key")
    holdings = RunnerModels(lambda: worker.pool.runners)
    reporter = Reporter(
        link, WORKER, lambda o, d: None, lambda _: None, runner_models=holdings
    )
    reporter.register(1, 1)
    manager.statuses = [503]
    reporter.tell_models()
    told = manager.wait_for(lambda: manager.reports[-1:])[0]["models"]
    assert [(m["name"], m["size_mb"]) for m in told["held"]] == [("b", 50.0)]
    reporter.ring()
    manager.wait_for(lambda: len(manager.reports) > 1)
    assert "models" not in manager.reports[-1]
    reporter.stop()
    reporter.join()
    link.close()
    manager.close()
