"""Stops tasks that make room for critical ones; they wait again, uncharged."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from corral.core.tasks.report import Outcome, OutcomeKind
from corral.core.tasks.task import State, TaskError
from corral.engine.base import Engine
from corral.errors import EngineUnavailable
from corral.manager.cluster.state import Cluster
from corral.manager.tasks.lingering import stopping
from corral.manager.tasks.settle import Settling
from corral.scheduler.plan import Stop

_WHY = TaskError("preempted", "stopped to make room for a critical task")


async def preempt(
    cluster: Cluster,
    settling: Settling,
    engine: Engine,
    stops: Sequence[Stop],
    why: TaskError = _WHY,
) -> None:
    """Take these attempts from their workers, as far as they are still there."""
    due = [stop for stop in stops if _is_there(cluster, stop)]
    with stopping(cluster, [stop.task_id for stop in due]):
        ended = await settling.settle(
            Outcome(stop.task_id, stop.attempt, OutcomeKind.RETURNED, error=why)
            for stop in due
        )
    for stop in due:
        link = cluster.workers.get(stop.worker_id)
        if link is not None and stop.task_id in ended:
            link.drops.add((stop.task_id, stop.attempt))
    # A bell that cannot be rung only costs time: every beat repeats the drop.
    with contextlib.suppress(EngineUnavailable):
        await engine.ring(sorted({stop.worker_id for stop in due}))


def _is_there(cluster: Cluster, stop: Stop) -> bool:
    task = cluster.tasks.get(stop.task_id)
    return (
        task is not None
        and task.state is not State.QUEUED
        and task.attempt == stop.attempt
        and task.worker_id == stop.worker_id
        and stop.worker_id in cluster.workers
    )
