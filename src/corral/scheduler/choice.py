"""Which worker a task goes to: the one rule, for the plan and for whoever asks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from corral.errors import SchedulingError
from corral.scheduler.value import Waiting


class Candidate(Protocol):
    """What the choice needs to know of a worker."""

    @property
    def worker_id(self) -> str: ...

    @property
    def job_types(self) -> frozenset[str]: ...

    @property
    def slots(self) -> int: ...

    @property
    def open_orders(self) -> int: ...


W = TypeVar("W", bound=Candidate)


def choose(job_type: str, workers: Iterable[W], ahead: int = 1) -> W | None:
    """The least loaded worker that serves the type and has room; ties by id.

    `ahead` is how many orders a slot may have: 2 hides a round trip.
    """
    free = [
        w
        for w in workers
        if job_type in w.job_types and w.open_orders < w.slots * ahead
    ]
    return min(free, key=lambda w: (w.open_orders / w.slots, w.worker_id), default=None)


def schedule_task(task: Waiting, workers: Iterable[W]) -> W | None:
    """Schedule one task to the best of some workers.

    Args:
        task: The task to schedule.
        workers: The workers to choose from.

    Returns:
        The chosen worker, or None when those that serve it are all busy.

    Raises:
        SchedulingError: no worker serves the task's type at all.
    """
    known = list(workers)
    if not any(task.job_type in w.job_types for w in known):
        raise SchedulingError(
            f"no worker serves '{task.job_type}'", job_type=task.job_type
        )
    return choose(task.job_type, known)
