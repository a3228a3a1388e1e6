"""Takes live tasks from where they are: cancelled on request, done by somebody else, or
stopped to make room for critical ones (those wait again, uncharged).

The store knows first, then the worker is told. Until an attempt has really stopped its
GPUs are nobody else's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING

from corral.core.tasks.outcome import Outcome, OutcomeKind
from corral.core.tasks.task import State, Task, TaskError, check_owner
from corral.engine.base import Engine
from corral.errors import (
    Conflict,
    CorralError,
    EngineUnavailable,
    StoreUnavailable,
    TaskNotFound,
)
from corral.manager.cluster.state import Cluster, WorkerLink
from corral.manager.context import ManagerContext
from corral.manager.tasks.settle import Settle
from corral.scheduler.events import CardsBack
from corral.scheduler.plan import Stop
from corral.store.base import TaskStore

if TYPE_CHECKING:
    from corral.manager.tasks.dispatch import Dispatch


log = logging.getLogger(__name__)
_TRIES = 5
_WHY = TaskError("preempted", "stopped to make room for a critical task")


class Cancel:
    """Ends live tasks on request, and tells the workers that have them."""

    def __init__(self, ctx: ManagerContext, settle: Settle, dispatch: Dispatch) -> None:
        self._cluster = ctx.cluster
        self._store: TaskStore = ctx.store.tasks
        self._engine = ctx.engine
        self._settle = settle
        self._dispatch = dispatch
        self._strays: set[asyncio.Task[None]] = set()

    async def cancel(self, task_id: str, only_of: str | None = None) -> None:
        """Cancel a live task; a running one is killed on its worker.

        Raises:
            TaskNotFound, Conflict: unknown, or it had ended already.
            Forbidden: it is not of the one whose tasks may be cancelled.
        """
        for _ in range(_TRIES):
            task = self._cluster.tasks.get(task_id)
            if task is None:
                await self._refuse(task_id)
                return
            check_owner(task.spec, only_of)
            error = TaskError("cancelled", "cancelled on request")
            outcome = Outcome(task.id, task.attempt, OutcomeKind.CANCELLED, error=error)
            with stopping(self._cluster, [task.id]):
                is_settled = await self._settle.settle([outcome])
            if is_settled:
                # If we die before the worker is told, its next beat lists an attempt
                # that is nobody's, and the answer says to drop it.
                await self.drop(task)
                return
            # It moved on in the same moment: look again.
        self._cluster.doubt()
        raise StoreUnavailable(f"task {task_id} is changing hands; try again")

    async def conclude(self, task_id: str, told: bytes, *, is_good: bool) -> bool:
        """Somebody who is none of our workers did a live task, or failed to: `told` is
        its result, or what was wrong. False when there is no such task.
        """
        task = self._cluster.tasks.get(task_id)
        if task is None:
            return False
        text = told.decode()
        outcome = Outcome(
            task.id,
            task.attempt,
            OutcomeKind.COMPLETED if is_good else OutcomeKind.FAILED,
            text if is_good else None,
            None if is_good else TaskError("failed", text),
        )
        if await self._settle.settle([outcome]):
            # Whoever still works on it need not go on.
            await self.drop(task)
        return True

    async def _refuse(self, task_id: str) -> None:
        stored = await self._store.get_task(task_id)
        if stored is None:
            raise TaskNotFound(f"no task {task_id!r}", task_id=task_id)
        raise Conflict(
            f"task {task_id} has already ended as {stored.state}",
            status=str(stored.state),
        )

    def give_up(self, task_id: str) -> None:
        """Nobody wants this task any more: cancel it, without waiting for that.

        Who went away is often a coroutine that is being cancelled itself.
        """
        stray = asyncio.create_task(self._surely(task_id))
        self._strays.add(stray)
        stray.add_done_callback(self._strays.discard)

    async def _surely(self, task_id: str) -> None:
        if not self._cluster.is_live(task_id):
            return
        try:
            await self.cancel(task_id)
        except CorralError as error:
            log.info("task %s is not cancelled: %s", task_id, error.message)

    async def drop(self, task: Task) -> None:
        """Tell the worker that has it, if one has, to stop."""
        link = self._cluster.link(task.worker_id or "")
        if link is not None and link.worker.incarnation == task.incarnation:
            if link.inside is not None:
                link.inside.drop(task.id, task.attempt)
            else:
                link.drops.add((task.id, task.attempt))
                # A bell that cannot be rung only costs time: beats repeat the drop.
                with contextlib.suppress(EngineUnavailable):
                    await self._engine.ring([link.id])
        self._dispatch.kick()


async def preempt(
    cluster: Cluster,
    settle: Settle,
    engine: Engine,
    stops: Sequence[Stop],
    why: TaskError = _WHY,
) -> None:
    """Take these attempts from their workers, as far as they are still there."""
    due = [stop for stop in stops if _is_there(cluster, stop)]
    with stopping(cluster, [stop.task_id for stop in due]):
        ended = await settle.settle(
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


@contextmanager
def stopping(cluster: Cluster, task_ids: Iterable[str]) -> Iterator[None]:
    """While these are settled: their workers are told only afterwards, so their GPUs
    stay taken until `stopped`.
    """
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


def _is_there(cluster: Cluster, stop: Stop) -> bool:
    task = cluster.tasks.get(stop.task_id)
    return (
        task is not None
        and task.state is not State.QUEUED
        and task.attempt == stop.attempt
        and task.worker_id == stop.worker_id
        and stop.worker_id in cluster.workers
    )
