"""Paused job types: their tasks wait, those of others do not."""

from __future__ import annotations

import pytest

from corral.scheduler.events import (
    OrderClosed,
    TasksQueued,
    TypePaused,
    WaitingTask,
    WorkerReady,
)
from corral.scheduler.scheduler import Policy, Scheduler

BOTH = frozenset({"a", "b"})


def serving(strategy: str = "smith") -> Scheduler:
    scheduler = Scheduler(Policy(order_max_tasks=1, strategy=strategy))
    scheduler.apply(WorkerReady("w0", "n", BOTH))
    return scheduler


def ids(scheduler: Scheduler) -> list[str]:
    return [t.task_id for o in scheduler.plan(1.0).orders for t in o.tasks]


@pytest.mark.parametrize("strategy", ["smith", "least_loaded"])
@pytest.mark.parametrize("worker_id", [None, "w0"])
def test_tasks_of_a_paused_type_wait_and_others_go_on(
    strategy: str, worker_id: str | None
) -> None:
    scheduler = serving(strategy)
    rows = [("a0", "a", 1), ("a1", "a", 2), ("b0", "b", 3)]
    scheduler.apply(
        TasksQueued(
            tuple(WaitingTask(n, 1, t, seq, worker_id=worker_id) for n, t, seq in rows)
        )
    )
    assert ids(scheduler) == ["a0"]
    scheduler.apply(TypePaused("a", True))
    scheduler.apply(OrderClosed("w0"))
    assert ids(scheduler) == ["b0"]
    scheduler.apply(OrderClosed("w0"))
    assert ids(scheduler) == []
    why = scheduler.why("a1", 1.0)
    assert why is not None
    assert why.reason == "type_paused"
    assert "corral job-type resume a" in why.message
    assert scheduler.waiting_by_type()["a"] == 1
    scheduler.apply(TypePaused("a", False))
    assert ids(scheduler) == ["a1"]


def test_what_comes_while_its_type_is_paused_waits_too() -> None:
    scheduler = serving()
    scheduler.apply(TypePaused("a", True))
    scheduler.apply(TasksQueued((WaitingTask("t", 1, "a", 1),)))
    assert ids(scheduler) == []
    scheduler.apply(TypePaused("a", False))
    scheduler.apply(TypePaused("a", False))
    assert ids(scheduler) == ["t"]
