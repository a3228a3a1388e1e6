"""Stops workers by whatever a caller knows of them, and nodes.

The wish is in what a node should run; its agent carries it out.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from corral.core.nodes.worker import LAUNCHED, MOVABLE, WorkerSpec
from corral.errors import WorkerNotFound
from corral.manager.cluster.state import Cluster, NodeLink, WorkerLink
from corral.manager.workers.registry import Registry
from corral.manager.workers.types import WorkerTypes

FOR_WORKER = "for_worker"
"""The label of a node that has one worker, and no reason to be without it."""


class Stopping:
    """Without a node a worker is looked for on all of them."""

    def __init__(
        self, cluster: Cluster, registry: Registry, worker_types: WorkerTypes
    ) -> None:
        self._cluster = cluster
        self._registry = registry
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
            await self._registry.stop(link.id)

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
            await self._registry.stop(link.id)
            self._let_go(self._registry.node(link.worker.node_id))

    @staticmethod
    def _let_go(node: NodeLink) -> None:
        """A node that was started for one worker ends with it."""
        if node.node.labels.get(FOR_WORKER):
            node.is_leaving = True
            node.touch_desired()

    def _on(self, node_url: str | None) -> list[WorkerLink]:
        if node_url is None:
            return list(self._cluster.workers.values())
        return self._registry.of_node(self._worker_types.node(node_url).node.id)


def _port(spec: WorkerSpec) -> int | None:
    try:
        return urlsplit(spec.url).port if spec.url else None
    except ValueError:
        return None
