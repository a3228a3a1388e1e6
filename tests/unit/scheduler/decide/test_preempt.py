"""Preemption: what is stopped for a critical task, and what never is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corral.scheduler.events import (
    HeldOrder,
    OrderClosed,
    TasksQueued,
    TasksRan,
    WaitingTask,
    WorkerReady,
)
from corral.scheduler.plan import Stop
from corral.scheduler.scheduler import Policy, Scheduler

NOW = 1_000_000.0
BOTH = frozenset({"a", "b"})
CRITICAL = WaitingTask("critical", 1, "b", 99, priority=100, arrived=NOW)


def running(*tasks: WaitingTask, is_on: bool = True) -> Scheduler:
    """A worker for each task, with 600 s to go; a critical one takes 10 s."""
    scheduler = Scheduler(Policy(order_max_tasks=1, preempts=is_on))
    for n in range(len(tasks)):
        scheduler.apply(WorkerReady(f"w{n}", "n", BOTH))
    scheduler.apply(TasksRan("a", "w0", 1, 600.0))
    scheduler.apply(TasksRan("b", "w0", 1, 10.0))
    scheduler.apply(TasksQueued(tasks))
    assert len(scheduler.plan(NOW).orders) == len(tasks)
    return scheduler


def task(name: str, seq: int, **more: object) -> WaitingTask:
    made = WaitingTask(name, 1, "a", seq, preemptible=True, arrived=NOW)
    return replace(made, **more)  # type: ignore[arg-type]


def stopped(scheduler: Scheduler, now: float = NOW) -> tuple[Stop, ...]:
    return scheduler.plan(now).preempt


def test_the_least_of_those_that_allow_it_is_stopped_and_the_critical_starts() -> None:
    scheduler = running(task("t0", 1), task("t1", 2, priority=-10))
    scheduler.apply(TasksQueued((CRITICAL,)))
    (stop,) = stopped(scheduler)
    assert stop.task_id == "t1"
    assert stopped(scheduler) == (), "it is asked for once"
    again = task("t1", 2, priority=-10, attempt=2)
    scheduler.apply(OrderClosed(stop.worker_id))
    scheduler.apply(TasksQueued((again,)))
    (order,) = scheduler.plan(NOW).orders
    assert (order.worker_id, order.tasks) == (stop.worker_id, (CRITICAL,))
    assert stopped(scheduler) == ()


def test_what_never_ran_before_is_not_waited_for() -> None:
    scheduler = Scheduler(Policy(order_max_tasks=1, preempts=True))
    scheduler.apply(WorkerReady("w0", "n", BOTH))
    scheduler.apply(TasksQueued((task("t0", 1),)))
    assert len(scheduler.plan(NOW).orders) == 1
    scheduler.apply(TasksQueued((CRITICAL,)))
    assert [stop.task_id for stop in stopped(scheduler)] == ["t0"]


def test_what_a_worker_had_before_it_was_known_here_can_be_stopped() -> None:
    scheduler = Scheduler(Policy(order_max_tasks=1, preempts=True))
    held = tuple(
        HeldOrder((task(name, seq),), NOW - 60 * seq)
        for name, seq in (("t1", 2), ("t0", 1))
    )
    scheduler.apply(WorkerReady("w0", "n", BOTH, 2, 2, held=held))
    scheduler.apply(TasksQueued((CRITICAL,)))
    assert [stop.task_id for stop in stopped(scheduler)] == ["t0"], "the youngest"


def test_of_equal_ones_the_last_to_start_loses_least() -> None:
    scheduler = running(task("t0", 1))
    scheduler.apply(WorkerReady("w1", "n", BOTH))
    scheduler.apply(TasksQueued((task("t1", 2),)))
    assert len(scheduler.plan(NOW + 60).orders) == 1
    scheduler.apply(TasksQueued((CRITICAL,)))
    (stop,) = stopped(scheduler, NOW + 60)
    assert stop.task_id == "t1"


@pytest.mark.parametrize(
    "other",
    [
        task("t0", 1, preemptible=False),
        task("t0", 1, priority=100),
        task("t0", 1, job_type="b"),
    ],
    ids=["does not allow it", "critical itself", "nearly done"],
)
def test_nothing_else_is_stopped(other: WaitingTask) -> None:
    scheduler = running(other)
    scheduler.apply(TasksQueued((CRITICAL,)))
    plan = scheduler.plan(NOW)
    assert plan.preempt == ()
    assert plan.next_wake is not None, "it looks again: a guess may turn out wrong"


def test_nothing_is_stopped_while_a_worker_is_free_soon_or_by_default() -> None:
    scheduler = running(task("t0", 1), task("t1", 2, job_type="b", preemptible=False))
    scheduler.apply(TasksQueued((CRITICAL,)))
    assert stopped(scheduler) == ()
    off = running(task("t0", 1), is_on=False)
    off.apply(TasksQueued((CRITICAL,)))
    assert stopped(off) == ()


def test_nothing_is_stopped_for_a_task_that_is_only_high() -> None:
    scheduler = running(task("t0", 1))
    scheduler.apply(TasksQueued((replace(CRITICAL, priority=99),)))
    assert stopped(scheduler) == ()


def test_as_many_are_stopped_as_critical_ones_wait() -> None:
    scheduler = running(*(task(f"t{n}", n) for n in range(4)))
    scheduler.apply(TasksQueued((CRITICAL, replace(CRITICAL, task_id="c2", seq=100))))
    assert len(stopped(scheduler)) == 2
    assert stopped(scheduler) == ()
