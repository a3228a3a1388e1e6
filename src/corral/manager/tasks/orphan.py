"""What becomes of tasks whose worker is gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from corral.core.tasks.job_status import ONLY_ON
from corral.core.tasks.report import Outcome, OutcomeKind
from corral.core.tasks.task import State, Task, TaskError


def orphan(task: Task, *, is_charged: bool) -> Outcome:
    """A task whose worker died: a loss only if it was seen running there."""
    if task.state is State.RUNNING and is_charged:
        error = TaskError("worker_died", f"worker {task.worker_id} died under it")
        return Outcome(task.id, task.attempt, OutcomeKind.LOST, error=error)
    return Outcome(task.id, task.attempt, OutcomeKind.RETURNED)


def homeless(tasks: Iterable[Task], worker_id: str) -> Iterator[Outcome]:
    """Of all tasks those for one worker alone, which was stopped for good."""
    error = TaskError("worker_gone", "the one worker it was for has been stopped")
    for task in tasks:
        if task.spec.labels.get(ONLY_ON) == worker_id:
            end = Outcome(task.id, task.attempt, OutcomeKind.FAILED, error=error)
            yield replace(end, is_final=True)
