"""Cancels tasks, wherever they are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING

from corral.core.tasks.report import Outcome, OutcomeKind
from corral.core.tasks.task import State, Task, TaskError
from corral.engine.base import Engine
from corral.errors import Conflict, EngineUnavailable, StoreUnavailable
from corral.manager.cluster.state import Cluster, WorkerLink
from corral.manager.tasks.settle import Settle
from corral.scheduler.events import CardsBack
from corral.scheduler.plan import Stop

if TYPE_CHECKING:
    from corral.manager.app import Manager


# Attempts that were told to stop: their GPUs are nobody else's until they have.


@contextmanager
def stopping(cluster: Cluster, task_ids: Iterable[str]) -> Iterator[None]:
    """While these are settled: their workers are told only afterwards."""
    ids = set(task_ids)
    cluster.stopping |= ids
    try:
        yield
    finally:
        cluster.stopping -= ids


def stopped(cluster: Cluster, link: WorkerLink, keys: Set[tuple[str, int]]) -> bool:
    """These attempts are not with this worker any more; had any something to give?"""
    found = sorted(link.lingering & keys)
    for task_id, attempt in found:
        link.lingering.discard((task_id, attempt))
        cluster.scheduler.apply(CardsBack(task_id, attempt))
    return bool(found)


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


# Stops tasks that make room for critical ones; they wait again, uncharged.

_WHY = TaskError("preempted", "stopped to make room for a critical task")


async def preempt(
    cluster: Cluster,
    settling: Settle,
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
