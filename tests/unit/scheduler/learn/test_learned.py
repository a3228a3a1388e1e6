"""What the scheduler learns of workers, kinds of tasks and models, and goes by."""

from __future__ import annotations

import random

import pytest

from corral.core.insight.learned import SPEED, Figure
from corral.scheduler.events import (
    ModelKnown,
    ModelsHeld,
    OrderClosed,
    Recalled,
    TasksQueued,
    TasksRan,
    WaitingTask,
    WorkerReady,
)
from corral.scheduler.learn.estimate import Estimates
from corral.scheduler.plan import PlannedOrder
from corral.scheduler.scheduler import Policy, Scheduler

TYPE = "render"
# By name alone the slow one would be asked first.
SPEEDS = {"a-slow": 1 / 3, "fast": 1.0}


def serving(*workers: str, policy: Policy | None = None) -> Scheduler:
    scheduler = Scheduler(policy or Policy())
    for worker_id in workers:
        scheduler.apply(WorkerReady(worker_id, worker_id, frozenset([TYPE])))
    return scheduler


def show_runs(scheduler: Scheduler, runs: int = 60, **speeds: float) -> None:
    """Let workers do as much as they do at these speeds, about 10 s at speed 1."""
    luck = random.Random(7)
    for _ in range(runs):
        for worker_id, speed in (speeds or SPEEDS).items():
            took_s = 10.0 * luck.lognormvariate(0.0, 0.2) / speed
            scheduler.apply(TasksRan(TYPE, worker_id, 1, took_s))


def queue(scheduler: Scheduler, count: int, first: int = 1) -> None:
    tasks = [WaitingTask(f"t{n}", 1, TYPE, n) for n in range(first, first + count)]
    scheduler.apply(TasksQueued(tuple(tasks)))


def speeds(scheduler: Scheduler) -> dict[str, float]:
    return {worker.worker_id: worker.speed for worker in scheduler.workers()}


def targets(orders: tuple[PlannedOrder, ...]) -> list[str]:
    return [order.worker_id for order in orders]


def carry_out(scheduler: Scheduler, count: int) -> dict[str, int]:
    """Do that many tasks in virtual time; how many each worker did."""
    done = dict.fromkeys(SPEEDS, 0)
    now, busy = 0.0, list[tuple[float, str, float]]()
    queue(scheduler, count, first=100)
    while sum(done.values()) < count:
        for order in scheduler.plan(now).orders:
            took_s = 10.0 * len(order.tasks) / SPEEDS[order.worker_id]
            busy.append((now + took_s, order.worker_id, took_s))
            done[order.worker_id] += len(order.tasks)
        now, worker_id, took_s = min(busy)
        busy.remove((now, worker_id, took_s))
        scheduler.apply(TasksRan(TYPE, worker_id, 1, took_s))
        scheduler.apply(OrderClosed(worker_id))
    return done


@pytest.mark.spec("C22")
def test_a_worker_that_took_three_times_as_long_is_asked_last() -> None:
    scheduler = serving("a-slow", "fast")
    show_runs(scheduler)
    queue(scheduler, 1)
    found = speeds(scheduler)
    assert found["fast"] / found["a-slow"] == pytest.approx(3.0, rel=0.3)
    (first,) = targets(scheduler.plan(0.0).orders)
    assert first == "fast"


@pytest.mark.spec("C22")
def test_with_a_queue_both_work_and_the_fast_one_does_more() -> None:
    scheduler = serving("a-slow", "fast")
    show_runs(scheduler)
    done = carry_out(scheduler, 80)
    assert done["a-slow"] > 0
    assert done["fast"] >= 2 * done["a-slow"]


def test_equal_workers_stay_equal_however_much_runs_differ() -> None:
    luck = random.Random(3)
    workers = [f"w{n}" for n in range(8)]
    scheduler = serving(*workers)
    for n in range(2_000):
        took_s = luck.lognormvariate(0.0, 1.0)
        scheduler.apply(TasksRan(TYPE, workers[n % 8], 1, took_s))
    assert set(speeds(scheduler).values()) == {1.0}


def test_one_run_far_out_changes_no_speed() -> None:
    scheduler = serving("a", "b")
    show_runs(scheduler, a=1.0, b=1.0)
    scheduler.apply(TasksRan(TYPE, "a", 1, 100_000.0))
    assert speeds(scheduler) == {"a": 1.0, "b": 1.0}


def test_what_only_one_worker_runs_says_nothing_of_its_speed() -> None:
    scheduler = serving("a", "b")
    for n in range(50):
        scheduler.apply(TasksRan("mine", "a", 1, 1.0 + n))
        scheduler.apply(TasksRan("yours", "b", 1, 100.0))
    assert speeds(scheduler) == {"a": 1.0, "b": 1.0}


def test_work_that_gets_slower_everywhere_changes_no_speed() -> None:
    scheduler = serving("a", "b", "c")
    show_runs(scheduler, a=1.0, b=1.0, c=1.0)
    show_runs(scheduler, a=0.2, b=0.2, c=0.2)
    assert set(speeds(scheduler).values()) == {1.0}


def test_a_learned_speed_is_bounded() -> None:
    scheduler = serving("a-slow", "fast")
    show_runs(scheduler, runs=200, **{"a-slow": 0.0001, "fast": 1.0})
    assert min(speeds(scheduler).values()) >= 0.099
    assert max(speeds(scheduler).values()) <= 10.1


def test_a_worker_that_comes_back_has_the_speed_it_showed() -> None:
    scheduler = serving("a-slow", "fast")
    show_runs(scheduler)
    before = speeds(scheduler)
    scheduler.apply(WorkerReady("a-slow", "a-slow", frozenset([TYPE])))
    assert speeds(scheduler) == pytest.approx(before)


def test_what_was_learned_can_be_taken_up_by_another_scheduler() -> None:
    scheduler = serving("a-slow", "fast")
    show_runs(scheduler)
    scheduler.apply(TasksRan(TYPE, "fast", 1, 10.0, "m", 12, working_mb=900.0))
    scheduler.apply(ModelKnown("m", 4000.0, 7.0, "fast"))
    rows = tuple(scheduler.learned())
    assert scheduler.learned() == []
    later = Scheduler(Policy())
    later.apply(Recalled(rows))
    for worker_id in SPEEDS:
        later.apply(WorkerReady(worker_id, worker_id, frozenset([TYPE])))
    assert speeds(later) == pytest.approx(speeds(scheduler))
    for kind in ((TYPE, None, 0), (TYPE, "m", 12)):
        assert later.expected_run(*kind) == scheduler.expected_run(*kind)
    assert later.working(TYPE, "m", 12) == scheduler.working(TYPE, "m", 12)
    assert later.expected_load("m", "fast") == scheduler.expected_load("m", "fast")
    assert {row.worker_id for row in rows if row.kind == SPEED} == set(SPEEDS)


# confidence -----------------------------------------------------------------------
def test_an_estimate_gets_surer_with_every_run() -> None:
    known = Estimates()
    luck = random.Random(5)
    widths = []
    for _ in range(3):
        for _ in range(30):
            known.learn(TYPE, 1, 10.0 * luck.lognormvariate(0.0, 0.1))
        found = known.run(TYPE)
        assert found is not None
        assert found.low < 10.0 < found.high
        widths.append((found.count, found.high / found.low))
    assert [count for count, _ in widths] == [30, 60, 90]
    assert widths == sorted(widths, key=lambda width: -width[1])


def test_four_of_five_runs_lie_within_what_is_said() -> None:
    known, luck = Estimates(), random.Random(11)
    runs = [10.0 * luck.lognormvariate(0.0, 0.5) for _ in range(2_000)]
    for took_s in runs:
        known.learn(TYPE, 1, took_s)
    found = known.run(TYPE)
    assert found is not None
    inside = sum(found.low <= took_s <= found.high for took_s in runs)
    assert 0.7 < inside / len(runs) < 0.9


def test_inputs_of_another_size_have_an_estimate_of_their_own() -> None:
    known = Estimates()
    for _ in range(50):
        known.learn(TYPE, 1, 1.0, None, 8)
        known.learn(TYPE, 1, 60.0, None, 20)
    small, large, strange = (known.run(TYPE, None, units) for units in (8, 20, 14))
    assert small is not None
    assert large is not None
    assert strange is not None
    assert small.value < 5.0 < 50.0 < large.value
    assert small.count == large.count == 50
    # Of a size that never came all that is like it is told.
    assert strange.count == 100
    assert small.value < strange.value < large.value


def test_of_what_never_ran_nothing_is_said() -> None:
    known = Estimates()
    known.learn("other", 1, 1.0)
    assert known.run(TYPE) is None
    assert known.working(TYPE) is None
    assert known.working_mb(TYPE, "m", 9) is None
    assert known.load("m") is None


# memory ---------------------------------------------------------------------------
def test_more_memory_is_believed_at_once_and_less_slowly() -> None:
    known = Estimates()
    for mb in (1000.0, 1000.0, 3000.0):
        known.learn_working(TYPE, mb, "m", 12)
    assert known.working_mb(TYPE, "m", 12) == 3000.0
    known.learn_working(TYPE, 1000.0, "m", 12)
    after = known.working_mb(TYPE, "m", 12)
    assert after is not None
    assert 2900.0 < after < 3000.0
    # A size that never came leans on all others of its kind.
    assert known.working_mb(TYPE, "m", 30) == after
    found = known.working(TYPE, "m", 12)
    assert isinstance(found, Figure)
    assert found.count == 4
    assert 1000.0 < found.value < 3000.0


# loads ----------------------------------------------------------------------------
@pytest.mark.spec("C42")
def test_a_model_goes_to_the_worker_that_loads_it_faster() -> None:
    scheduler = serving("a-slow-disk", "fast-disk")
    for _ in range(10):
        scheduler.apply(ModelKnown("m", 1000.0, 60.0, "a-slow-disk"))
        scheduler.apply(ModelKnown("m", 1000.0, 6.0, "fast-disk"))
    slow = scheduler.expected_load("m", "a-slow-disk")
    fast = scheduler.expected_load("m", "fast-disk")
    assert slow is not None
    assert fast is not None
    assert slow.count == fast.count == 10
    assert slow.value > 40.0 > 20.0 > fast.value
    for worker_id in ("a-slow-disk", "fast-disk"):
        scheduler.apply(ModelsHeld(worker_id, frozenset()))
    scheduler.apply(TasksQueued((WaitingTask("t", 1, TYPE, 1, model="m"),)))
    found = scheduler.explain("t", 0.0)
    assert found is not None
    load_s = {c.worker_id: c.terms.load_s for c in found.candidates if c.terms}
    assert load_s == {"a-slow-disk": slow.value, "fast-disk": fast.value}
