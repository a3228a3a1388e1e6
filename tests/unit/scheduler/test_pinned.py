"""Tasks that one worker alone may run."""

from __future__ import annotations

from corral.core.tasks.job_type import QueueOrder
from corral.scheduler.events import (
    OrderClosed,
    TasksQueued,
    TypeOrdered,
    TypesServed,
    WaitingTask,
    WorkerBroken,
    WorkerGone,
    WorkerReady,
)
from corral.scheduler.plan import Plan
from corral.scheduler.scheduler import Scheduler

NOW = 1000.0


def pinned(
    task_id: str, worker_id: str, job_type: str = "a", **more: float
) -> WaitingTask:
    return WaitingTask(task_id, 1, job_type, 1, worker_id=worker_id, **more)  # type: ignore[arg-type]


def two_workers() -> Scheduler:
    scheduler = Scheduler()
    scheduler.apply(WorkerReady("w1", "n1", frozenset({"a"})))
    scheduler.apply(WorkerReady("w2", "n1", frozenset({"b"})))
    return scheduler


def placed(plan: Plan) -> dict[str, str]:
    return {t.task_id: o.worker_id for o in plan.orders for t in o.tasks}


def test_a_pinned_task_goes_to_its_worker_whatever_types_that_one_serves() -> None:
    scheduler = two_workers()
    scheduler.apply(TasksQueued((pinned("t", "w2"), pinned("u", "w1", "no_type"))))
    assert placed(scheduler.plan(NOW)) == {"t": "w2", "u": "w1"}


def test_a_pinned_task_waits_for_its_busy_worker_though_another_is_free() -> None:
    scheduler = two_workers()
    scheduler.apply(TasksQueued((pinned("t", "w2"), pinned("u", "w2"))))
    assert placed(scheduler.plan(NOW)) == {"t": "w2"}
    why = scheduler.why("u", NOW)
    assert why is not None
    assert (why.reason, why.details) == ("workers_busy", {"workers": ["w2"]})
    scheduler.apply(OrderClosed("w2"))
    assert placed(scheduler.plan(NOW)) == {"u": "w2"}


def test_a_pinned_task_waits_while_its_worker_is_away_or_broken() -> None:
    scheduler = two_workers()
    scheduler.apply(WorkerGone("w2"))
    scheduler.apply(TasksQueued((pinned("t", "w2", run_after=NOW - 1),)))
    assert placed(scheduler.plan(NOW)) == {}
    why = scheduler.why("t", NOW)
    assert why is not None
    assert why.reason == "no_worker"
    scheduler.apply(WorkerBroken("w2", frozenset({"b"}), "no such class"))
    why = scheduler.why("t", NOW)
    assert why is not None
    assert (why.reason, why.details) == ("worker_error", {"w2": "no such class"})
    scheduler.apply(WorkerReady("w2", "n1", frozenset()))
    scheduler.apply(TypesServed("w2", frozenset({"c"})))
    assert placed(scheduler.plan(NOW)) == {"t": "w2"}


def test_pinned_tasks_are_counted_and_listed_under_their_own_type() -> None:
    scheduler = Scheduler()
    scheduler.apply(TypeOrdered("a", QueueOrder.STACK))
    scheduler.apply(TasksQueued((pinned("t", "w9"), WaitingTask("u", 1, "a", 2))))
    assert scheduler.waiting_by_type() == {"a": 2}
    assert sorted(scheduler.waiting_ids("a")) == ["t", "u"]
    assert scheduler.waiting_ids("@w9") == []
