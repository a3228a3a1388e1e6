"""Moves workers that were launched on no node in particular off a drained one.

The worker's row changes its node: its id stays, and with it the tasks that are for it
alone. The agent there stops it, the other one starts it.
"""

from __future__ import annotations

from dataclasses import replace

from corral.core.nodes.node import NodeState
from corral.core.nodes.worker import WorkerSpec, WorkerState
from corral.manager.clock import Clock
from corral.manager.cluster.state import Cluster, NodeLink, WorkerLink
from corral.manager.tasks.dispatch import Dispatching
from corral.manager.workers.registry import Registry
from corral.store.base import Event, Store


class Moving:
    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        registry: Registry,
        dispatching: Dispatching,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._registry = registry
        self._dispatching = dispatching
        self._clock = clock

    async def move(self, worker: WorkerLink) -> bool:
        """Give an idle worker to another node; false when it stays where it is."""
        old = self._registry.node(worker.worker.node_id)
        target = self._target(worker, old)
        if target is None:
            return False
        worker.is_leaving = True
        await self._registry.retire(worker, WorkerState.STARTING)
        await self._dispatching.forget(worker)
        self._cluster.move_worker(worker, target.node.id)
        worker.worker = replace(worker.worker, error=None)
        worker.is_parked = worker.is_leaving = False
        await self._store.save_worker(worker.worker)
        old.touch_desired()
        target.touch_desired()
        await self._tell(worker, old, target)
        return True

    def _target(self, worker: WorkerLink, old: NodeLink) -> NodeLink | None:
        spec = worker.worker.spec
        if not spec.is_movable:
            return None
        fit = [n for n in self._cluster.nodes.values() if self._is_fit(spec, old, n)]
        return emptiest(self._registry, fit)

    def _is_fit(self, spec: WorkerSpec, old: NodeLink, other: NodeLink) -> bool:
        cards = sum(gpu.is_offered for gpu in other.gpus or ())
        names = {w.worker.spec.name for w in self._registry.of_node(other.node.id)}
        return (
            other is not old
            and can_take(other)
            and other.node.all_taints <= old.node.all_taints
            and int(spec.gpus or 0) <= cards
            and spec.name not in names
        )

    async def _tell(self, worker: WorkerLink, old: NodeLink, new: NodeLink) -> None:
        name, node = worker.worker.spec.name, old.node
        title = f"worker {name} moves from {node.hostname} to {new.node.hostname}"
        data = {"worker_id": worker.id, "to": new.node.id}
        now = self._clock.now()
        event = Event("worker_moved", title, "info", node.id, data=data, at=now)
        await self._store.add_events([event])


def can_take(link: NodeLink) -> bool:
    """Is there an agent on it that would start another worker?"""
    is_up = link.node.state is NodeState.ONLINE and not link.is_own
    return is_up and not link.holds


def emptiest(registry: Registry, nodes: list[NodeLink]) -> NodeLink | None:
    """The one with the fewest workers; tainted ones only when there is no other."""
    return min(
        nodes,
        key=lambda n: (
            bool(n.node.all_taints),
            len(registry.of_node(n.node.id)),
            n.node.id,
        ),
        default=None,
    )
