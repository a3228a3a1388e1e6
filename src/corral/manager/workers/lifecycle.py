"""Restarts, stops and moves of workers: asked for here, carried out by agents.

What is wanted of a worker is in its row (its generation, its node, whether there is a
row at all), so it outlives a restart of the manager. No process is started or ended
here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from corral.core.nodes.node import NodeState
from corral.core.nodes.worker import LAUNCHED, MOVABLE, WorkerSpec, WorkerState
from corral.errors import WorkerNotFound
from corral.manager.cluster.state import Cluster, NodeLink, WorkerLink
from corral.manager.context import ManagerContext
from corral.manager.tasks.dispatch import Dispatch
from corral.manager.workers.registry import WorkerRegistry
from corral.manager.workers.types import WorkerTypeRegistry
from corral.scheduler.events import WorkerGone
from corral.store.base import Event, RegistryStore

FOR_WORKER = "for_worker"
"""The label of a node that has one worker, and no reason to be without it."""


class WorkerRestarts:
    def __init__(
        self, ctx: ManagerContext, workers: WorkerRegistry, dispatch: Dispatch
    ) -> None:
        self._cluster = ctx.cluster
        self._store: RegistryStore = ctx.store.registry
        self._workers = workers
        self._dispatch = dispatch

    async def restart(self, worker_id: str) -> float:
        """Let a worker start anew under its id; for how many seconds, about.

        It gets no more orders and finishes what it runs; what it cannot finish in
        the agent's grace goes back uncharged.
        """
        link = self._cluster.worker(worker_id)
        generation = link.worker.generation + 1
        await self._store.save_workers([replace(link.worker, generation=generation)])
        link.worker = replace(link.worker, generation=generation)
        link.is_leaving = True
        self._cluster.scheduler.apply(WorkerGone(worker_id))
        self._dispatch.kick()
        self._cluster.node(link.worker.node_id).touch_desired()
        return _downtime_s(link)


class WorkerStops:
    """Without a node a worker is looked for on all of them."""

    def __init__(
        self,
        ctx: ManagerContext,
        workers: WorkerRegistry,
        worker_types: WorkerTypeRegistry,
    ) -> None:
        self._cluster = ctx.cluster
        self._workers = workers
        self._worker_types = worker_types

    async def by_name(self, name: str, node_url: str | None) -> None:
        names = {name, LAUNCHED + name, MOVABLE + name}
        await self._stop(node_url, name, lambda w: w.worker.spec.name in names)

    async def by_id(self, worker_id: str, node_url: str | None) -> None:
        await self._stop(node_url, worker_id, lambda w: w.id == worker_id)

    async def by_port(self, port: int, node_url: str | None) -> None:
        await self._stop(
            node_url, f"port {port}", lambda w: _port(w.worker.spec) == port
        )

    async def all_of(self, node_url: str) -> None:
        for link in self._on(node_url):
            await self._workers.stop(link.id)

    async def node(self, node_url: str) -> str:
        """Stop a node and its workers; its id."""
        link = self._worker_types.node(node_url)
        link.is_leaving = True
        await self.all_of(link.node.id)
        link.touch_desired()
        return link.node.id

    async def _stop(
        self, node_url: str | None, what: str, is_wanted: Callable[[WorkerLink], bool]
    ) -> None:
        found = [link for link in self._on(node_url) if is_wanted(link)]
        if not found:
            where = f" on {node_url}" if node_url else ""
            raise WorkerNotFound(f"no worker {what!r}{where}")
        for link in found:
            await self._workers.stop(link.id)
            self._let_go(self._cluster.node(link.worker.node_id))

    @staticmethod
    def _let_go(node: NodeLink) -> None:
        """A node that was started for one worker ends with it."""
        if node.node.labels.get(FOR_WORKER):
            node.is_leaving = True
            node.touch_desired()

    def _on(self, node_url: str | None) -> list[WorkerLink]:
        if node_url is None:
            return list(self._cluster.workers.values())
        return self._cluster.of_node(self._worker_types.node(node_url).node.id)


class WorkerMoves:
    """Takes workers that were launched on no node in particular off a drained one."""

    def __init__(
        self, ctx: ManagerContext, workers: WorkerRegistry, dispatch: Dispatch
    ) -> None:
        self._cluster = ctx.cluster
        self._store: RegistryStore = ctx.store.registry
        self._workers = workers
        self._dispatch = dispatch
        self._clock = ctx.clock
        self._record = ctx.record

    async def move(self, worker: WorkerLink) -> bool:
        """Give an idle worker to another node; false when it stays where it is."""
        old = self._cluster.node(worker.worker.node_id)
        target = self._target(worker, old)
        if target is None:
            return False
        worker.is_leaving = True
        await self._workers.retire(worker, WorkerState.STARTING)
        await self._dispatch.forget(worker)
        self._cluster.move_worker(worker, target.node.id)
        worker.worker = replace(worker.worker, error=None)
        worker.is_parked = worker.is_leaving = False
        await self._store.save_workers([worker.worker])
        old.touch_desired()
        target.touch_desired()
        await self._tell(worker, old, target)
        return True

    def _target(self, worker: WorkerLink, old: NodeLink) -> NodeLink | None:
        spec = worker.worker.spec
        if not spec.is_movable:
            return None
        fit = [n for n in self._cluster.nodes.values() if self._is_fit(spec, old, n)]
        return emptiest(self._cluster, fit)

    def _is_fit(self, spec: WorkerSpec, old: NodeLink, other: NodeLink) -> bool:
        cards = sum(gpu.is_offered for gpu in other.gpus or ())
        names = {w.worker.spec.name for w in self._cluster.of_node(other.node.id)}
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
        await self._record([event])


def can_take(link: NodeLink) -> bool:
    """Is there an agent on it that would start another worker?"""
    is_up = link.node.state is NodeState.ONLINE and not link.is_own
    return is_up and not link.holds


def emptiest(cluster: Cluster, nodes: Sequence[NodeLink]) -> NodeLink | None:
    """The one with the fewest workers; tainted ones only when there is no other."""
    return min(
        nodes,
        key=lambda n: (
            bool(n.node.all_taints),
            len(cluster.of_node(n.node.id)),
            n.node.id,
        ),
        default=None,
    )


def _downtime_s(link: WorkerLink) -> float:
    """What a task of it took on average, while it has some, and its last start."""
    task_s = link.busy_s / link.ran if link.ran and link.orders else 0.0
    return round(task_s + link.start_s, 1)


def _port(spec: WorkerSpec) -> int | None:
    try:
        return urlsplit(spec.url).port if spec.url else None
    except ValueError:
        return None
