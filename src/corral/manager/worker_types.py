"""Worker types and the workers launched from them, as the job API knows both.

A launch is its worker: the launch id is the worker's id, so nothing of it is lost when
the manager restarts. URLs of nodes and workers are names; nobody dials them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from corral.core.job import launch_status
from corral.core.worker import WorkerSpec, WorkerState
from corral.core.worker_type import WorkerType
from corral.errors import InvalidField, NodeNotFound, NotFound
from corral.manager.clock import Clock, new_id
from corral.manager.registry import Registry
from corral.manager.state import Cluster, NodeLink, WorkerLink
from corral.store.base import Store

_FAILURES_KEPT = 1000
_GONE = (WorkerState.LOST, WorkerState.STOPPED, WorkerState.ERROR)


@dataclass(frozen=True, slots=True)
class Launch:
    """How far a launch is: pending, running, ready or failed."""

    id: str
    status: str
    worker: WorkerLink | None = None
    error: str | None = None


class WorkerTypes:
    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        registry: Registry,
        clock: Clock,
        ports: tuple[int, ...] = tuple(range(8092, 8112)),
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._registry = registry
        self._clock = clock
        self._ports = ports
        self._failed: OrderedDict[str, str] = OrderedDict()

    # types -------------------------------------------------------------------
    def get(self, name: str) -> WorkerType:
        found = self._cluster.worker_types.get(name)
        if found is None:
            known = ", ".join(sorted(self._cluster.worker_types)) or "none yet"
            raise NotFound(f"no worker type {name!r}; known: {known}", name=name)
        return found

    async def save(self, worker_type: WorkerType) -> None:
        """Register a type, or replace it; workers that run keep what they have."""
        if worker_type.job_type is not None:
            await self._registry.ensure_job_types([worker_type.job_type])
        row = replace(worker_type, created_at=self._clock.now())
        await self._store.save_worker_type(row)
        self._cluster.worker_types[row.name] = row

    async def bind(self, job_type: str, name: str) -> None:
        """Workers launched from this type will serve that job type."""
        await self.save(replace(self.get(name), job_type=job_type))

    async def remove(self, name: str) -> None:
        self.get(name)
        await self._store.delete_worker_type(name)
        del self._cluster.worker_types[name]

    # launches ----------------------------------------------------------------
    def node(self, name: str) -> NodeLink:
        """A node by the URL it was launched with, its id, or its name."""
        for link in self._cluster.nodes.values():
            node = link.node
            if name in (node.id, node.hostname) or _same(name, node.labels.get("url")):
                return link
        raise NodeNotFound(f"no node {name!r}", node_url=name)

    def by_url(self, url: str) -> WorkerLink | None:
        for link in self._cluster.workers.values():
            if _same(url, link.worker.spec.url):
                return link
        return None

    async def launch(
        self, node_url: str, type_name: str, name: str | None, url: str | None
    ) -> str:
        """Want a worker of a type on a node; the launch id."""
        node, worker_type = self.node(node_url), self.get(type_name)
        taken = self._taken(node.node.id)
        if url is None:
            port = next((p for p in self._ports if p not in taken), None)
            if port is None:
                low, high = self._ports[0], self._ports[-1]
                return self._fail(f"no free port in {low}-{high} on {node_url}")
            url = f"http://{_host(node)}:{port}"
        elif _port(url) in taken:
            return self._fail(f"the port of {url} is taken by another worker")
        types = (worker_type.job_type,) if worker_type.job_type else ()
        spec = WorkerSpec(
            f"api-{name or new_id(type_name)}",
            worker_type.worker_class,
            types,
            worker_type.params,
            worker_type=type_name,
            url=url,
        )
        return (await self._registry.launch(node.node.id, spec)).id

    def _taken(self, node_id: str) -> set[int]:
        """Ports of living workers; those of dead ones are used again."""
        return {
            port
            for link in self._registry.of_node(node_id)
            if link.worker.state not in _GONE
            and (port := _port(link.worker.spec.url)) is not None
        }

    def _fail(self, reason: str) -> str:
        launch_id = new_id("launch")
        self._failed[launch_id] = reason
        while len(self._failed) > _FAILURES_KEPT:
            self._failed.popitem(last=False)
        return launch_id

    def launch_of(self, launch_id: str) -> Launch:
        if (reason := self._failed.get(launch_id)) is not None:
            return Launch(launch_id, "failed", error=reason)
        link = self._cluster.workers.get(launch_id)
        if link is None:
            raise NotFound(f"no launch {launch_id!r}", launch_id=launch_id)
        worker = link.worker
        return Launch(launch_id, launch_status(worker), link, worker.error)

    async def connect(self, job_type: str, url: str) -> bool:
        """Let a running worker serve a job type; false when there is none."""
        link = self.by_url(url)
        if link is None:
            return False
        await self._registry.serve(link, job_type)
        return True


def _same(one: str, other: str | None) -> bool:
    return other is not None and one.rstrip("/") == other.rstrip("/")


def _port(url: str | None) -> int | None:
    try:
        return urlsplit(url).port if url else None
    except ValueError:
        raise InvalidField(f"{url!r} is not a URL", field="worker_url") from None


def _host(node: NodeLink) -> str:
    return urlsplit(node.node.labels.get("url", "")).hostname or "localhost"
