"""Expected starts: what they are made of, and intervals that hold as often as said."""

from __future__ import annotations

import random

import pytest

from corral.core.tasks.job_type import QueueOrder
from corral.scheduler.events import (
    NodeHeld,
    OrderClosed,
    TasksGone,
    TasksQueued,
    TasksRan,
    TypePaused,
    WaitingTask,
    WorkerReady,
)
from corral.scheduler.explain.decisions import Recent
from corral.scheduler.explain.forecast import Calibration
from corral.scheduler.scheduler import Scheduler
from corral.scheduler.world.line import TaskQueue

NOW = 1000.0
A = frozenset({"a"})


def queue(scheduler: Scheduler, *names: str, **more: int) -> None:
    for number, name in enumerate(names):
        task = WaitingTask(name, 1, "a", number, arrived=NOW, **more)  # type: ignore[arg-type]
        scheduler.apply(TasksQueued((task,)))


def busy(workers: int = 1, each_s: float = 20.0) -> Scheduler:
    """Workers that have just begun with something that takes so long."""
    scheduler = Scheduler()
    for number in range(workers):
        scheduler.apply(WorkerReady(f"w{number}", "n1", A))
    scheduler.apply(TasksRan("a", "w0", 10, 10 * each_s))
    queue(scheduler, *(f"first{n}" for n in range(workers)))
    assert len(scheduler.plan(NOW).orders) == workers
    return scheduler


def in_s(scheduler: Scheduler, task_id: str, now: float = NOW) -> float:
    start = scheduler.expect(task_id, now)
    assert start is not None
    assert now <= start.low <= start.at <= start.high
    return start.at - now


def test_the_next_task_starts_when_a_worker_is_free() -> None:
    scheduler = busy()
    queue(scheduler, "next")
    assert in_s(scheduler, "next") == pytest.approx(20.0)
    assert in_s(scheduler, "next", NOW + 15) == pytest.approx(5.0)


def test_those_before_it_take_their_time_and_more_workers_less() -> None:
    scheduler = busy(2)
    queue(scheduler, *(f"t{n}" for n in range(6)), "last")
    assert in_s(scheduler, "last") == pytest.approx(20.0 + 6 * 20.0 / 2)


def test_a_higher_priority_starts_sooner() -> None:
    scheduler = busy()
    queue(scheduler, *(f"t{n}" for n in range(6)))
    queue(scheduler, "urgent", priority=10)
    assert in_s(scheduler, "urgent") < in_s(scheduler, "t5")


def test_nothing_is_foretold_without_a_worker_or_any_experience() -> None:
    scheduler = Scheduler()
    queue(scheduler, "t")
    assert scheduler.expect("t", NOW) is None
    scheduler.apply(WorkerReady("w0", "n1", A))
    assert scheduler.expect("t", NOW) is None
    scheduler.apply(TasksRan("a", "w0", 1, 5.0))
    assert scheduler.expect("t", NOW) is not None
    scheduler.apply(NodeHeld("n1", "cables"))
    assert scheduler.expect("t", NOW) is None
    scheduler.apply(NodeHeld("n1", None))
    scheduler.apply(TypePaused("a", True))
    assert scheduler.expect("t", NOW) is None
    assert scheduler.expect("unknown", NOW) is None


def test_a_task_that_is_taken_back_is_not_held_against_the_forecast() -> None:
    scheduler = busy()
    queue(scheduler, "t")
    scheduler.expect("t", NOW)
    scheduler.apply(TasksGone(("t",)))
    scheduler.apply(OrderClosed("w0"))
    scheduler.plan(NOW + 500)
    assert scheduler.forecasts.checked == 0


@pytest.mark.parametrize("late", [1.0, 3.0])
def test_intervals_hold_four_times_of_five_whatever_the_error(late: float) -> None:
    """Tasks start `late` times as late as expected, and by chance."""
    chance = random.Random(7)
    scheduler = busy()
    now = NOW
    held: list[bool] = []
    for number in range(2000):
        name = f"t{number}"
        queue(scheduler, name)
        start = scheduler.expect(name, now)
        assert start is not None
        now += 20.0 * late * chance.lognormvariate(0.0, 0.5)
        held.append(start.low <= now <= start.high)
        scheduler.apply(OrderClosed("w0"))
        assert len(scheduler.plan(now).orders) == 1
    assert scheduler.forecasts.checked == 2000
    assert scheduler.forecasts.kept == sum(held)
    later = held[500:]
    assert sum(later) / len(later) == pytest.approx(0.8, abs=0.05)


def test_a_calibration_finds_the_tenths_of_what_it_sees() -> None:
    chance = random.Random(3)
    found = Calibration(0.1)
    for _ in range(5000):
        found.learn(chance.gauss(1.0, 0.5))
    assert found.low == pytest.approx(1.0 - 1.28 * 0.5, abs=0.25)
    assert found.middle == pytest.approx(1.0, abs=0.2)
    assert found.high == pytest.approx(1.0 + 1.28 * 0.5, abs=0.25)


@pytest.mark.parametrize("order", list(QueueOrder))
def test_a_newcomer_knows_how_many_are_before_it_without_a_look_at_each(
    order: QueueOrder,
) -> None:
    line = TaskQueue(order)
    for number, priority in enumerate((0, 5, 0, -1, 5)):
        line.push(WaitingTask(f"t{number}", 1, "a", number, priority))
    line.discard("t0")
    line.push(WaitingTask("t1", 2, "a", 1, 0))
    line.take(1, 1 << 20)
    for priority in (-2, 0, 3, 5, 9):
        new = WaitingTask("new", 1, "a", 99, priority)
        assert line.ahead(new) == line.position(new)
        line.push(new)
        assert line.ahead(new) == line.position(new)
        line.discard("new")


def test_what_is_noted_is_kept_for_a_while_and_then_goes() -> None:
    memory: Recent[int] = Recent(10)
    for number in range(100):
        memory.note(str(number), number)
        assert memory.get(str(number)) == number
        assert len(memory) <= 10
    assert memory.get("96") == 96
    assert memory.get("80") is None
    assert (memory.pop("99"), memory.get("99")) == (99, None)
    assert memory.pop("99") is None
