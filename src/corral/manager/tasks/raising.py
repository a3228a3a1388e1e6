"""A task that ran out of GPU memory goes where there is more, while there is."""

from __future__ import annotations

from dataclasses import replace

from corral.core.tasks.report import OUT_OF_MEMORY, Outcome, OutcomeKind
from corral.core.tasks.task import Task
from corral.manager.cluster.state import Cluster
from corral.scheduler.plan import OutOfMemory


def with_more_memory(cluster: Cluster, task: Task, outcome: Outcome) -> Outcome:
    """The outcome; one that a larger card may mend sends the task back, uncharged."""
    error = outcome.error
    is_short = error is not None and error.kind == OUT_OF_MEMORY
    if outcome.kind is not OutcomeKind.FAILED or not is_short:
        return outcome
    spec, scheduler = task.spec, cluster.scheduler
    before = scheduler.floor_mb(spec.job_type, spec.model)
    scheduler.apply(
        OutOfMemory(task.id, spec.job_type, spec.model, task.worker_id or "")
    )
    is_known = scheduler.floor_mb(spec.job_type, spec.model) > before
    if not is_known or not scheduler.fits_somewhere(cluster.waiting(task)):
        return outcome
    return replace(outcome, kind=OutcomeKind.RETURNED, result=None)
