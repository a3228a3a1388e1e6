"""One choice for whoever asks for one, by the scheduler itself."""

from __future__ import annotations

from collections.abc import Iterable

from corral.errors import SchedulingError
from corral.scheduler.events import TasksQueued, WaitingTask, WorkerReady
from corral.scheduler.scheduler import Scheduler


def schedule_task(
    task: WaitingTask, workers: Iterable[WorkerReady]
) -> WorkerReady | None:
    """Schedule one task to the best of some workers.

    Args:
        task: The task to schedule.
        workers: The workers to choose from.

    Returns:
        The chosen worker, or None when those that serve it are all busy.

    Raises:
        SchedulingError: no worker serves the task's type at all.
    """
    known = {worker.worker_id: worker for worker in workers}
    if not any(task.job_type in worker.job_types for worker in known.values()):
        raise SchedulingError(
            f"no worker serves '{task.job_type}'", job_type=task.job_type
        )
    scheduler = Scheduler()
    for worker in known.values():
        scheduler.apply(worker)
    scheduler.apply(TasksQueued((task,)))
    orders = scheduler.plan(task.arrived).orders
    return known[orders[0].worker_id] if orders else None
