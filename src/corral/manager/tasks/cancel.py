"""Cancels tasks, wherever they are."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from corral.core.tasks.report import Outcome, OutcomeKind
from corral.core.tasks.task import Task, TaskError
from corral.errors import Conflict, EngineUnavailable, StoreUnavailable
from corral.manager.tasks.lingering import stopping

if TYPE_CHECKING:
    from corral.manager.app import Manager

_TRIES = 5


async def cancel(manager: Manager, task_id: str) -> None:
    for _ in range(_TRIES):
        task = manager.cluster.tasks.get(task_id)
        if task is None:
            stored = await manager.stored(task_id)
            raise Conflict(
                f"task {task_id} has already ended as {stored.state}",
                status=str(stored.state),
            )
        error = TaskError("cancelled", "cancelled on request")
        outcome = Outcome(task.id, task.attempt, OutcomeKind.CANCELLED, error=error)
        with stopping(manager.cluster, [task.id]):
            is_settled = await manager.settling.settle([outcome])
        if is_settled:
            await drop(manager, task)
            return
        # It moved on in the same moment: look again.
    manager.cluster.is_dirty = True
    raise StoreUnavailable(f"task {task_id} is changing hands; try again")


async def drop(manager: Manager, task: Task) -> None:
    manager.calling.drop(task.id, task.attempt)
    link = manager.cluster.workers.get(task.worker_id or "")
    if link is not None and link.worker.incarnation == task.incarnation:
        link.drops.add((task.id, task.attempt))
        # A bell that cannot be rung only costs time: every beat repeats the drop.
        with contextlib.suppress(EngineUnavailable):
            await manager.engine.ring([link.id])
    manager.dispatching.kick()
