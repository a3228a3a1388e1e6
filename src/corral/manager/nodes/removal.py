"""Nodes that go for good: those that are asked to leave, and those nobody hears of.

One that left has no key any more. One that was forgotten keeps it: should it come back,
it takes up its identity.
"""

from __future__ import annotations

import logging

from corral.core.nodes.node import NodeState
from corral.errors import Conflict
from corral.manager.access.keys import Keys
from corral.manager.cluster.state import Cluster, NodeLink
from corral.manager.context import ManagerContext
from corral.manager.feature import Loop
from corral.manager.nodes import holds, resources
from corral.manager.workers.registry import WorkerRegistry
from corral.store.base import Event, RegistryStore

log = logging.getLogger(__name__)
_PERIOD_S = 0.5
LEAVE_S = 60.0
"""How long an agent that was asked to leave may take; its workers have half of it."""
_UP = (NodeState.ONLINE, NodeState.SUSPECT)


class NodeLeave:
    def __init__(
        self,
        ctx: ManagerContext,
        workers: WorkerRegistry,
        keys: Keys,
        stale_after_s: float,
    ) -> None:
        self._cluster = ctx.cluster
        self._store: RegistryStore = ctx.store.registry
        self._workers = workers
        self._keys = keys
        self._clock = ctx.clock
        self._record = ctx.record
        self._stale_after_s = stale_after_s
        self._give_up_at: dict[str, float] = {}

    async def leave(self, node_id: str, *, force: bool = False) -> NodeLink:
        """Ask a node's agent to stop and forget the node; at once when it is not up.

        With `force` nobody is asked: its key is void now, and its tasks go back.

        Raises:
            Conflict: tasks run on it and `force` was not said, or it is the manager's.
        """
        link = self._cluster.node(node_id)
        if link.is_own:
            raise Conflict(f"node {node_id} is the manager's own machine")
        running = running_tasks(self._cluster, link)
        is_up = link.node.state in _UP
        if is_up and running and not force:
            raise Conflict(
                f"{running} task(s) run on node {node_id}: 'corral drain' it first, "
                "or use force",
                node_id=node_id,
                running_tasks=running,
            )
        if not is_up or force:
            self._give_up_at.pop(node_id, None)
            await self._finish(link)
            return link
        for worker in self._cluster.of_node(node_id):
            worker.is_leaving = True
        link.is_leaving = link.is_forgotten = True
        # Asked again it has no longer: one that does not want to go could ask itself.
        self._give_up_at.setdefault(node_id, self._clock.monotonic() + LEAVE_S)
        link.touch_desired()
        return link

    def loop(self) -> Loop:
        return Loop("leaving", _PERIOD_S, self.step)

    async def step(self) -> None:
        """Finish with those whose agents have stopped, forget those long lost."""
        for node_id, give_up_at in list(self._give_up_at.items()):
            link = self._cluster.node(node_id)
            if self._clock.monotonic() >= give_up_at or self._has_stopped(link):
                del self._give_up_at[node_id]
                await self._finish(link)
        for link in list(self._cluster.nodes.values()):
            if self._is_stale(link):
                await self._forget(link)

    def _has_stopped(self, link: NodeLink) -> bool:
        if link.node.state not in _UP:
            return True
        workers = self._cluster.of_node(link.node.id)
        return link.is_leave_told and not any(w.worker.incarnation for w in workers)

    async def _finish(self, link: NodeLink) -> None:
        await self._keys.revoke_node(link.node.id)
        await self._end(link, "node_left", "has left")
        link.is_leaving = link.is_forgotten = False

    # nodes nobody hears of -----------------------------------------------------
    def _is_stale(self, link: NodeLink) -> bool:
        node = link.node
        if node.state is not NodeState.LOST:
            return False
        seen = node.last_heartbeat or node.joined_at
        if seen is None:
            return False
        return (self._clock.now() - seen).total_seconds() >= self._stale_after_s

    async def _forget(self, link: NodeLink) -> None:
        log.info("node %s is forgotten", link.node.id)
        days = self._stale_after_s / 86_400
        words = f"was not heard of for {days:.3g} days and is forgotten"
        await self._end(link, "node_forgotten", words)

    async def _end(self, link: NodeLink, kind: str, words: str) -> None:
        node, now = link.node, self._clock.now()
        for worker in self._cluster.of_node(node.id):
            await self._workers.stop(worker.id)
        # With another epoch beats of this one are refused: whoever sends them must
        # register, and then gets its workers.
        await holds.change_node(
            self._store,
            link,
            state=NodeState.LEFT,
            left_at=now,
            epoch=node.epoch + 1,
        )
        resources.withdraw_offers(self._cluster, link)
        event = Event(kind, f"{node.hostname} {words}", "info", node.id, at=now)
        await self._record([event])


def running_tasks(cluster: Cluster, link: NodeLink) -> int:
    """Tasks that workers of a node have."""
    workers = cluster.of_node(link.node.id)
    return sum(len(order.left) for w in workers for order in w.orders.values())
