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
from corral.core.tasks.task import Overlap, State, Task
from corral.engine.base import Engine
from corral.errors import EngineUnavailable
from corral.manager.access.derived_keys import node_password
from corral.manager.clock import Clock
from corral.manager.cluster.state import Cluster, OpenOrder, WorkerLink
from corral.manager.nodes.liveness import Liveness
from corral.manager.tasks.dispatch import Dispatch
from corral.manager.tasks.settle import Settle
from corral.manager.workers.registry import Registry
from corral.scheduler.events import TasksGone, TasksQueued
from corral.store.base import Store

log = logging.getLogger(__name__)
_OPEN = 2
"""As many orders a slot may have: one at work, one ahead."""


class Rescue:
    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        engine: Engine,
        registry: Registry,
        settling: Settle,
        dispatching: Dispatch,
        clock: Clock,
        liveness: Liveness,
        cluster_secret: bytes,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._engine = engine
        self._registry = registry
        self._settling = settling
        self._dispatching = dispatching
        self._clock = clock
        self._liveness = liveness
        self._cluster_secret = cluster_secret
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
        now, limit_s = self._clock.monotonic(), self._liveness.register_s
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
                self._registry.set_serving(link, WorkerState.ERROR, error)

    async def _watch_engine(self) -> None:
        try:
            server_id = await self._engine.server_id()
        except EngineUnavailable as e:
            if self._dispatching.is_engine_up:
                log.warning("orders wait: %s", e.message)
            self._dispatching.is_engine_up = False
            return
        if server_id != self._server_id:
            # A Redis that started anew has forgotten the nodes' users.
            for node_id in list(self._cluster.nodes):
                await self._engine.grant(
                    node_id, node_password(self._cluster_secret, node_id)
                )
            self._server_id = server_id
        if not self._dispatching.is_engine_up:
            log.info("Redis answers again")
            self._dispatching.is_engine_up = True
            self._dispatching.kick()

    async def reconcile(self) -> None:
        """Make memory agree with the store after a write of unknown outcome."""
        self._cluster.is_dirty = False
        try:
            await self._compare()
        except BaseException:
            self._cluster.is_dirty = True
            raise
        self._dispatching.kick()

    async def _compare(self) -> None:
        stored = {t.id: t for t in await self._store.live_tasks()}
        ended = [t for t in self._cluster.tasks if t not in stored]
        # A task may have been settled or inserted while live_tasks was read, so only
        # what the store says about it now counts.
        await self._settling.follow(await self._store.get_tasks(ended))
        for task in stored.values():
            if self._is_behind(task):
                await self._adopt(task.id)
        await self._find_strays()
        await self.resolve()

    async def _find_strays(self) -> None:
        """Tasks a broken-off hand-over left between the scheduler and a worker."""
        workers = (*self._cluster.workers.values(), *self._cluster.inside.values())
        held = {task_id for link in workers for _, task_id in link.held()}
        homeless = []
        for task in self._cluster.tasks.values():
            if task.id in held or task.id in self._dispatching.in_hand:
                continue
            if task.id in self._cluster.kept:
                continue
            if task.state is not State.QUEUED:
                homeless.append(task)
            elif not self._cluster.scheduler.knows(task.id):
                self._queue(task)
        if homeless:
            await self._dispatching.give_up(homeless)

    async def resolve(self) -> None:
        """Look up what queued tasks depend on, where that is no longer live."""
        await self._settling.resolve(
            need
            for task in self._cluster.tasks.values()
            if task.state is State.QUEUED
            for need in task.spec.depends_on
        )

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
            and task.id not in self._dispatching.in_hand
        )

    async def _adopt(self, task_id: str) -> None:
        task = await self._store.get_task(task_id)
        if task is None or task.is_terminal or not self._is_behind(task):
            return
        known = self._cluster.tasks.get(task_id)
        if known is not None:
            self._cluster.close_attempt(known)
            self._cluster.scheduler.apply(TasksGone((task_id,)))
        if not self.take_over(task):
            await self._dispatching.give_up([task])

    def _queue(self, task: Task) -> None:
        """Let it wait, for all it depends on; `resolve` finds out what is met."""
        needs = frozenset(task.spec.depends_on)
        waiting = self._cluster.waiting(task, needs)
        self._cluster.scheduler.apply(TasksQueued((waiting,)))

    def take_over(self, task: Task) -> bool:
        """Put a live task of the store into memory, wherever it is.

        False when no worker has it any more, and it must be given up. Follow with
        `resolve`.
        """
        self._cluster.sequence = max(self._cluster.sequence, task.seq)
        self._cluster.keep(task)
        if task.state is State.QUEUED:
            self._queue(task)
            return True
        node = self._cluster.nodes.get(task.node_id or "")
        if node is not None and node.node.state in (NodeState.LOST, NodeState.LEFT):
            return self._keep(task, node.seen)
        link = self._cluster.link_of(task)
        if link is None or link.worker.incarnation != task.incarnation:
            return False
        self._restore(link, task)
        self._cluster.taken(task)
        return True

    def _restore(self, link: WorkerLink, task: Task) -> None:
        """This worker holds the attempt, unless its beats say no."""
        # Which came together nobody knows: apart, none looks as if it took no slot.
        if len(link.orders) < _OPEN * link.worker.spec.concurrency:
            order = OpenOrder(f"restored {task.id}", self._clock.monotonic(), set())
            self._cluster.open_order(link, order)
        else:
            order = min(link.orders.values(), key=lambda order: len(order.left))
        order.left.add(task.id)

    def _keep(self, task: Task, seen: float) -> bool:
        """Its node was lost before we began: it may go elsewhere, unless too early."""
        if task.spec.overlap is not Overlap.NEVER:
            return False
        free_at = seen + self._liveness.no_overlap_requeue_s
        self._cluster.kept[task.id] = (task.attempt, free_at)
        return True
