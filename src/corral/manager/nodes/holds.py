"""Nodes that get nothing new: cordoned, drained, in a window, used by their owner.

What a held node runs goes on to its end. On one that is drained a worker is stopped
once it holds nothing; its row stays wanted, and it comes back with the node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from corral.core.nodes.node import Hold, HoldSource, NodeState, held_words
from corral.core.nodes.worker import WorkerState
from corral.errors import InvalidField
from corral.manager.cluster import scheduler_events as serving
from corral.manager.cluster.state import NodeLink, WorkerLink
from corral.manager.context import ManagerContext
from corral.manager.feature import Loop
from corral.manager.nodes.windows import WindowWatch, is_over
from corral.manager.tasks.dispatch import Dispatch
from corral.manager.workers.lifecycle import WorkerMoves
from corral.manager.workers.registry import WorkerRegistry
from corral.scheduler.events import NodeHeld
from corral.store.base import Event, RegistryStore

_PERIOD_S = 0.25
DRAINED = "drained"
_SILENT = "its heartbeats are late"
_LEAVING = Hold(HoldSource.OPERATOR, "it leaves the cluster")


class NodeHolds:
    def __init__(
        self, ctx: ManagerContext, workers: WorkerRegistry, dispatch: Dispatch
    ) -> None:
        self._cluster = ctx.cluster
        self._store: RegistryStore = ctx.store.registry
        self._workers = workers
        self._dispatch = dispatch
        self._clock = ctx.clock
        self._record = ctx.record
        self._moving = WorkerMoves(ctx, workers, dispatch)
        self._watches: dict[str, WindowWatch] = {}

    def load(self) -> None:
        """Take up what the store has of all nodes, before anything is planned."""
        for link in self._cluster.nodes.values():
            self._cluster.mark(link.node)
            self._follow(link)
            for worker in self._cluster.of_node(link.node.id):
                if link.is_draining and self._is_idle(worker):
                    self._park(link, worker)

    def holds(self, link: NodeLink) -> list[Hold]:
        """Everything that keeps new work from a node now."""
        node, now = link.node, self._clock.now()
        found = [] if node.hold is None or _is_past(node.hold, now) else [node.hold]
        if node.windows:
            watch = self._watches.setdefault(node.id, WindowWatch())
            hold = watch.look(node.windows, now)
            found += [hold] if hold is not None else []
        if link.owner_hold is not None:
            found.append(link.owner_hold)
        if link.is_leaving:
            found.append(_LEAVING)
        return found

    # verbs -------------------------------------------------------------------
    async def hold(
        self,
        node_id: str,
        reason: str,
        until: datetime | None,
        by: str,
        *,
        drain: bool,
    ) -> NodeLink:
        """Cordon a node, or drain it; what an operator said before is replaced."""
        link, now = self._cluster.node(node_id), self._clock.now()
        if link.is_own:
            link.check_open()
        if until is not None and until <= now:
            raise InvalidField("until is over already", field="until")
        former = link.node.hold
        since = former.since if former and former.drain == drain else now
        hold = Hold(HoldSource.OPERATOR, reason, drain, since, until, by)
        await self._save(link, hold)
        words = f"{link.node.hostname} is {held_words([hold])}"
        await self._tell(link, "node_draining" if drain else "node_cordoned", words)
        return link

    async def uncordon(self, node_id: str, why: str = "") -> NodeLink:
        """Take back what an operator said; other holds stay."""
        link = self._cluster.node(node_id)
        if link.node.hold is not None:
            await self._save(link, None)
            words = f"{link.node.hostname} is no longer cordoned{why}"
            await self._tell(link, "node_uncordoned", words)
        return link

    async def _save(self, link: NodeLink, hold: Hold | None) -> None:
        await change_node(self._store, link, hold=hold)
        await self._step(link)

    # the loop ----------------------------------------------------------------
    def loop(self) -> Loop:
        return Loop("holding", _PERIOD_S, self.step)

    async def step(self) -> None:
        """Follow the clock, and stop workers of drained nodes that became idle."""
        for link in list(self._cluster.nodes.values()):
            is_silent = link.node.state is NodeState.SUSPECT
            if is_silent is not link.is_silent or self._is_watched(link):
                await self._step(link)

    def _is_watched(self, link: NodeLink) -> bool:
        return bool(link.holds or link.node.windows or self.holds(link))

    async def _step(self, link: NodeLink) -> None:
        hold, now = link.node.hold, self._clock.now()
        if hold is not None and _is_past(hold, now):
            await self.uncordon(link.node.id, ": its time is over")
            return
        before = _window_of(link.holds)
        was_draining = link.is_draining
        self._follow(link)
        await self._tell_window(link, before, _window_of(link.holds))
        if link.is_draining:
            await self._drain(link)
        elif was_draining:
            await self._resume(link)

    def _follow(self, link: NodeLink) -> None:
        """Let memory and the scheduler have what holds the node now."""
        held = tuple(self.holds(link))
        is_silent = link.node.state is NodeState.SUSPECT
        if held == link.holds and is_silent is link.is_silent:
            return
        link.holds, link.is_silent = held, is_silent
        reason = held_words(held) or (_SILENT if is_silent else None)
        self._cluster.scheduler.apply(NodeHeld(link.node.id, reason))
        self._dispatch.kick()

    async def _tell_window(
        self, link: NodeLink, before: Hold | None, now: Hold | None
    ) -> None:
        name = link.node.hostname
        if before is None and now is not None:
            words = f"{name} is {held_words([now])}"
            await self._tell(link, "window_began", words)
        elif before is not None and now is None:
            await self._tell(link, "window_ended", f"maintenance of {name} is over")
            left = tuple(
                w for w in link.node.windows if not is_over(w, self._clock.now())
            )
            if left != link.node.windows:
                await change_node(self._store, link, windows=left)

    # draining ----------------------------------------------------------------
    async def _drain(self, link: NodeLink) -> None:
        for worker in self._cluster.of_node(link.node.id):
            if self._is_idle(worker) and not await self._moving.move(worker):
                self._park(link, worker)
        workers = self._cluster.of_node(link.node.id)
        if not link.is_drained and scheduling(link, workers) == DRAINED:
            link.is_drained = True
            words = f"{link.node.hostname} is drained: nothing runs on it"
            await self._tell(link, "node_drained", words)

    def _is_idle(self, worker: WorkerLink) -> bool:
        """It has no order, and none is on its way to it."""
        return not worker.orders and not self._cluster.scheduler.open_orders(worker.id)

    def _park(self, link: NodeLink, worker: WorkerLink) -> None:
        if worker.is_parked:
            return
        worker.is_parked = worker.is_leaving = True
        if worker.worker.incarnation is None:
            self._workers.set_serving(worker, WorkerState.STOPPED)
        else:
            self._cluster.scheduler.apply(serving.worker_out(worker))
        link.touch_desired()

    async def _resume(self, link: NodeLink) -> None:
        link.is_drained = False
        for worker in self._cluster.of_node(link.node.id):
            if worker.is_parked:
                await self._wake(worker)
        link.touch_desired()

    async def _wake(self, worker: WorkerLink) -> None:
        worker.is_parked = False
        if worker.worker.incarnation is None:
            worker.is_leaving = False
            self._workers.set_serving(worker, WorkerState.STARTING)
            return
        # Nobody knows here whether its process has been told to stop. Whichever it
        # is, with another generation the agent starts it anew.
        row = replace(worker.worker, generation=worker.worker.generation + 1)
        await self._store.save_workers([row])
        worker.worker = replace(worker.worker, generation=row.generation)

    async def _tell(self, link: NodeLink, kind: str, title: str) -> None:
        event = Event(kind, title, "info", link.node.id, at=self._clock.now())
        await self._record([event])


def scheduling(link: NodeLink, workers: Iterable[WorkerLink]) -> str:
    """In one word what a node is given: open, cordoned, draining or drained."""
    if not link.holds:
        return "open"
    if not link.is_draining:
        return "cordoned"
    # A worker without an incarnation has no process, as far as is known.
    is_empty = not any(w.orders or w.worker.incarnation for w in workers)
    return DRAINED if is_empty else "draining"


def _is_past(hold: Hold, now: datetime) -> bool:
    return hold.until is not None and hold.until <= now


def _window_of(holds: tuple[Hold, ...]) -> Hold | None:
    found = (hold for hold in holds if hold.source is HoldSource.WINDOW)
    return next(found, None)


async def change_node(store: RegistryStore, link: NodeLink, **said: Any) -> None:
    """Change fields of a node in memory and in the store, or in neither.

    Memory has them first: a beat that writes the row meanwhile writes them too.
    """
    former = {name: getattr(link.node, name) for name in said}
    link.node = replace(link.node, **said)
    try:
        await store.save_node(link.node)
    except BaseException:
        link.node = replace(link.node, **former)
        raise
