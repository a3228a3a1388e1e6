"""Keeps gangs together: they start at once, and end or wait again at once.

When a member fails, the others would wait for it for ever: they are stopped. When one
is lost or goes back, all go back, uncharged, and start together again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from corral.core.tasks.options import Gang
from corral.core.tasks.outcome import Outcome, OutcomeKind, Settlement
from corral.core.tasks.task import State, Task, TaskError
from corral.errors import CorralError
from corral.manager.context import ManagerContext
from corral.manager.tasks.cancel import preempt, stopping
from corral.manager.tasks.dispatch import Dispatch
from corral.manager.tasks.settle import Settle
from corral.scheduler.plan import Stop

log = logging.getLogger(__name__)
_TOGETHER = TaskError("gang", "stopped: another member of its gang must begin again")
_SOON_S = 1.0


class Gangs:
    def __init__(self, ctx: ManagerContext, settle: Settle, dispatch: Dispatch) -> None:
        self._cluster = ctx.cluster
        self._settle = settle
        self._engine = ctx.engine
        self._dispatch = dispatch
        self._running: set[asyncio.Task[None]] = set()
        ctx.signals.settled.listen(self._on_settled)
        ctx.signals.unsent.listen(self._on_left)

    def _on_settled(self, settled: Sequence[tuple[Task, Settlement]]) -> None:
        for task, row in settled:
            if task.spec.options.gang is not None:
                self._on_member(task, row.state)

    def _on_member(self, task: Task, state: State) -> None:
        """A member has ended, or waits again; told before it could start again."""
        gang = task.spec.options.member
        if gang is None:
            return
        others = self._others(task, gang)
        waiting = [other for other in others if other.state is State.QUEUED]
        if state is State.COMPLETED:
            self._start(self._end(waiting, _words(gang, task, state)))
        elif state is not State.QUEUED:
            self._start(self._end(others, _words(gang, task, state)))
        elif len(others) < gang.size - 1:
            mine = self._cluster.tasks.get(task.id)
            rest = [*others, *((mine,) if mine is not None else ())]
            words = "its gang cannot begin again: some of it has ended"
            self._start(self._end(rest, words))
        else:
            self._start(self._take_back(others))

    def _on_left(self, task_id: str) -> None:
        """A member was planned, but not handed over: the others may have been."""
        asyncio.get_running_loop().call_later(_SOON_S, self._look, task_id)

    def _look(self, task_id: str) -> None:
        task = self._cluster.tasks.get(task_id)
        if task is not None and task.state is State.QUEUED:
            self._on_member(task, State.QUEUED)

    def _others(self, task: Task, gang: Gang) -> list[Task]:
        return [
            other
            for other in self._cluster.tasks.values()
            if other.id != task.id
            and other.spec.owner == task.spec.owner
            and other.spec.options.gang == gang.name
        ]

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        # Not awaited: whoever settles a task must not wait for another to be settled.
        made = asyncio.get_running_loop().create_task(self._surely(work))
        self._running.add(made)
        made.add_done_callback(self._running.discard)

    async def _surely(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except CorralError as error:
            # What stays is seen when the next of them ends.
            log.warning("a gang is not followed: %s", error.message)
        self._dispatch.kick()

    async def _end(self, tasks: Sequence[Task], words: str) -> None:
        error = TaskError("gang", words)
        live = [task for task in tasks if task.id in self._cluster.tasks]
        with stopping(self._cluster, [task.id for task in live]):
            ended = await self._settle.settle(
                Outcome(t.id, t.attempt, OutcomeKind.FAILED, error=error, is_final=True)
                for t in live
            )
        await self._drop([task for task in live if task.id in ended])

    async def _take_back(self, tasks: Sequence[Task]) -> None:
        stops = [
            Stop(t.worker_id, t.id, t.attempt)
            for t in tasks
            if t.worker_id is not None and t.state is not State.QUEUED
        ]
        await preempt(self._cluster, self._settle, self._engine, stops, _TOGETHER)

    async def _drop(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            link = self._cluster.workers.get(task.worker_id or "")
            if link is not None:
                link.drops.add((task.id, task.attempt))
        workers = sorted({t.worker_id for t in tasks if t.worker_id})
        if workers:
            await self._engine.ring(workers)


def _words(gang: Gang, task: Task, state: State) -> str:
    if state is State.COMPLETED:
        return f"its gang has ended: {task.id} (rank {gang.rank}) has completed"
    return f"{task.id} (rank {gang.rank}) of its gang ended as {state}"
