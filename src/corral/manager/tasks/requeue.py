"""Runs ended tasks again, on request: the only way out of a terminal state."""

from __future__ import annotations

from dataclasses import replace

from corral.core.tasks.task import State, Task, check_owner
from corral.errors import Conflict, TaskNotFound
from corral.manager.context import ManagerContext
from corral.manager.output.artifacts import Artifacts
from corral.manager.signals import TaskRequeued
from corral.manager.tasks.dispatch import Dispatch
from corral.manager.tasks.settle import Settle
from corral.scheduler.events import TasksGone, TasksQueued
from corral.store.base import TaskStore


class Requeue:
    def __init__(
        self,
        ctx: ManagerContext,
        settle: Settle,
        dispatch: Dispatch,
        artifacts: Artifacts,
    ) -> None:
        self._cluster = ctx.cluster
        self._store: TaskStore = ctx.store.tasks
        self._settle = settle
        self._dispatch = dispatch
        self._artifacts = artifacts
        self._clock = ctx.clock
        self._signals = ctx.signals
        self._tracing = ctx.tracing

    async def requeue(self, task_id: str, only_of: str | None = None) -> Task:
        """Run an ended task again under the same id; `only_of` as for cancelling."""
        stored = await self._store.get_task(task_id)
        if stored is None:
            raise TaskNotFound(f"no task {task_id!r}", task_id=task_id)
        check_owner(stored.spec, only_of)
        if stored.is_terminal:
            await self._check_needs(stored)
            await self._artifacts.restart(stored)
        now = self._clock.now()
        with self._signals.writing() as tell:
            task = await self._store.requeue_task(self._cluster.term, task_id, now)
            if task is not None:
                tell(TaskRequeued(task))
        if task is None:
            raise Conflict(
                f"task {task_id} is {stored.state}; only ended tasks can be requeued",
                status=str(stored.state),
            )
        if (known := self._cluster.tasks.get(task.id)) is not None:
            # That it had ended is news here: the answer to that write was lost.
            self._cluster.close_attempt(known)
            self._cluster.scheduler.apply(TasksGone((task.id,)))
        self._cluster.tasks[task.id] = task
        self._tracing.requeue(task.id, self._clock.now())
        waiting = self._cluster.waiting(task, frozenset(task.spec.depends_on))
        # Its run waits from now on: it must not pass all that came since its first.
        waiting = replace(waiting, arrived=self._clock.now().timestamp())
        self._cluster.scheduler.apply(TasksQueued((waiting,)))
        await self._settle.resolve(task.spec.depends_on)
        self._dispatch.kick()
        return task

    async def _check_needs(self, task: Task) -> None:
        for need in await self._store.get_tasks(task.spec.depends_on):
            if need.is_terminal and need.state is not State.COMPLETED:
                raise Conflict(
                    f"task {need.id}, which it depends on, is {need.state}: "
                    "requeue that one first",
                    depends_on=need.id,
                )
