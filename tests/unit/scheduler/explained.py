"""Schedulers in a situation, and what they say of a task in it."""

from __future__ import annotations

from typing import Any

from corral.scheduler.events import (
    SchedulerEvent,
    TasksQueued,
    WaitingTask,
)
from corral.scheduler.explain.values import Remedy, TaskExplanation
from corral.scheduler.scheduler import Scheduler

NOW = 1000.0
A, B = frozenset({"a"}), frozenset({"b"})


def scheduler(*events: SchedulerEvent) -> Scheduler:
    made = Scheduler()
    for event in events:
        made.apply(event)
    return made


def queued(task_id: str = "t", seq: int = 9, **more: Any) -> TasksQueued:
    return TasksQueued((WaitingTask(task_id, 1, "a", seq, arrived=NOW, **more),))


def starts(made: Scheduler, now: float = NOW, task_id: str = "t") -> str | None:
    """The worker that a plan gives the task to."""
    for order in made.plan(now).orders:
        if task_id in {task.task_id for task in order.tasks}:
            return order.worker_id
    return None


def explained(made: Scheduler, now: float = NOW, task_id: str = "t") -> TaskExplanation:
    """What is said of it; the reason is the one of `why`."""
    found = made.explain(task_id, now)
    assert found is not None
    if found.reason is not None and made.knows(task_id):
        assert found.reason == made.why(task_id, now)
    return found


def waits(
    made: Scheduler, reason: str, change: str, now: float = NOW
) -> tuple[TaskExplanation, Remedy]:
    """It does not start, for this reason; the smallest change that would start it."""
    assert starts(made, now) is None
    found = explained(made, now)
    assert found.reason is not None
    assert found.reason.reason == reason
    assert found.changes
    assert found.changes[0].kind == change
    return found, found.changes[0]


def verdicts(found: TaskExplanation) -> dict[str, str]:
    return {c.worker_id: c.verdict for c in found.candidates}
