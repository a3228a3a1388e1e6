"""The one cure for every hand-over that can die half way.

An engine that came back, workers that never registered, writes whose outcome is
unknown: each ends with the task queued again as a new attempt, or with memory as the
store is.
"""

from __future__ import annotations

import contextlib
import logging

from corral.core.nodes.node import NodeState
from corral.core.nodes.worker import WorkerState
from corral.core.tasks.task import State, Task
from corral.errors import EngineUnavailable
from corral.manager.access.derived_keys import node_password
from corral.manager.context import ManagerContext
from corral.manager.tasks import Tasks
from corral.manager.workers.registry import WorkerRegistry
from corral.scheduler.events import TasksGone
from corral.store.base import TaskStore

log = logging.getLogger(__name__)


class Rescue:
    """A worker that should be there must register within `register_s`."""

    def __init__(
        self,
        ctx: ManagerContext,
        tasks: Tasks,
        workers: WorkerRegistry,
        register_s: float,
    ) -> None:
        self._cluster = ctx.cluster
        self._store: TaskStore = ctx.store.tasks
        self._engine = ctx.engine
        self._clock = ctx.clock
        self._secret = ctx.secret
        self._settle = tasks.settle
        self._dispatch = tasks.dispatch
        self._restore = tasks.restore
        self._tasks = tasks
        self._workers = workers
        self._register_s = register_s
        self._server_id = ""

    async def step(self) -> None:
        await self._watch_engine()
        if self._cluster.is_dirty:
            await self.reconcile()
        self._watch_registrations()
        await self._wake_stale()

    async def _wake_stale(self) -> None:
        """Who outlived the loss of its node asks what changed, and so begins anew.

        One that is at work finds out by itself, with its next report.
        """
        stale = [w.id for w in self._cluster.workers.values() if w.is_stale]
        if stale:
            with contextlib.suppress(EngineUnavailable):
                await self._engine.ring(stale)

    def _watch_registrations(self) -> None:
        """A worker that should be there but never registers is shown as broken."""
        now, limit_s = self._clock.monotonic(), self._register_s
        for link in self._cluster.workers.values():
            node = self._cluster.nodes.get(link.worker.node_id)
            is_due = (
                link.worker.state is WorkerState.STARTING
                and link.worker.incarnation is None
                and node is not None
                and node.node.state is NodeState.ONLINE
            )
            if not is_due:
                link.wanted_at = None
            elif link.wanted_at is None:
                link.wanted_at = now
            elif now - link.wanted_at >= limit_s:
                error = f"it did not register within {limit_s:g} s"
                self._workers.set_serving(link, WorkerState.ERROR, error)

    async def _watch_engine(self) -> None:
        try:
            server_id = await self._engine.server_id()
        except EngineUnavailable as e:
            if self._cluster.is_engine_up:
                log.warning("orders wait: %s", e.message)
            self._cluster.set_engine(False)
            return
        if server_id != self._server_id:
            # A Redis that started anew has forgotten the nodes' users.
            for node_id, link in list(self._cluster.nodes.items()):
                # One that left has no key any more. One that is forgotten has, and
                # is let in when it registers again.
                if link.node.state is not NodeState.LEFT:
                    password = node_password(self._secret, node_id)
                    await self._engine.grant(node_id, password)
            # Only now: where a grant failed, all are made again at the next step.
            self._server_id = server_id
        if not self._cluster.is_engine_up:
            log.info("Redis answers again")
            self._cluster.set_engine(True)
            self._dispatch.kick()

    async def reconcile(self) -> None:
        """Make memory agree with the store after a write of unknown outcome."""
        # Before the comparison: a doubt that arises during it asks for another one.
        self._cluster.trust()
        try:
            await self._compare()
        except BaseException:
            self._cluster.doubt()
            raise
        self._dispatch.kick()

    async def _compare(self) -> None:
        stored = {t.id: t for t in await self._store.live_tasks()}
        ended = [t for t in self._cluster.tasks if t not in stored]
        # A task may have been settled or inserted while live_tasks was read, so only
        # what the store says about it now counts.
        await self._settle.follow(await self._store.get_tasks(ended))
        for task in stored.values():
            if self._is_behind(task):
                await self._adopt(task.id)
        await self._find_strays()
        await self._tasks.resolve()

    async def _find_strays(self) -> None:
        """Tasks a broken-off hand-over left between the scheduler and a worker."""
        workers = (*self._cluster.workers.values(), *self._cluster.inside.values())
        held = {task_id for link in workers for _, task_id in link.held()}
        homeless = []
        # No await until all were looked at: `held` and `in_hand` are of one moment, and
        # a task that changes hands is in one of them.
        for task in self._cluster.tasks.values():
            if task.id in held or task.id in self._dispatch.in_hand:
                continue
            if task.id in self._cluster.kept:
                continue
            if task.state is not State.QUEUED:
                homeless.append(task)
            elif not self._cluster.scheduler.knows(task.id):
                self._restore.queue(task)
        if homeless:
            await self._dispatch.give_up(homeless)

    def _is_behind(self, task: Task) -> bool:
        """Does memory lack something the store has? What is on its way does not count.

        A placement whose answer was lost leaves the row assigned and memory queued.
        """
        known = self._cluster.tasks.get(task.id)
        if known is None or known.attempt < task.attempt:
            return True
        return (
            known.attempt == task.attempt
            and known.state is State.QUEUED
            and task.state is not State.QUEUED
            and task.id not in self._dispatch.in_hand
        )

    async def _adopt(self, task_id: str) -> None:
        # Read again: those before it took their time, and it may have moved on.
        task = await self._store.get_task(task_id)
        if task is None or task.is_terminal or not self._is_behind(task):
            return
        known = self._cluster.tasks.get(task_id)
        if known is not None:
            self._cluster.close_attempt(known)
            self._cluster.scheduler.apply(TasksGone((task_id,)))
        if not self._restore.take_over(task):
            await self._dispatch.give_up([task])
