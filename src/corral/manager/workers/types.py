"""Worker types and the workers launched from them, as the job API knows both.

A launch is its worker: the launch id is the worker's id, so nothing of it is lost when
the manager restarts. URLs of nodes and workers are names; nobody dials them.
"""

from __future__ import annotations

import socket
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from corral.core.nodes.node import NodeState
from corral.core.nodes.worker import LAUNCHED, MOVABLE, WorkerSpec, WorkerState
from corral.core.nodes.worker_type import (
    WorkerCode,
    WorkerType,
    check_scaling,
    check_served,
)
from corral.core.tasks.job_status import launch_status
from corral.errors import InvalidField, NodeNotFound, NotFound
from corral.manager.clock import new_id
from corral.manager.cluster.state import NodeLink, WorkerLink
from corral.manager.context import ManagerContext
from corral.manager.signals import NameChanged
from corral.manager.workers.registry import WorkerRegistry
from corral.store.base import RegistryStore

PORTS = "worker_ports"
"""The label of a node with its workers' ports: 9001,9002."""
_FAILURES_KEPT = 1000
_GONE = (WorkerState.LOST, WorkerState.STOPPED, WorkerState.ERROR)


@dataclass(frozen=True, slots=True)
class LaunchProgress:
    """How far a launch is: pending, running, ready or failed."""

    id: str
    status: str
    worker: WorkerLink | None = None
    error: str | None = None


class WorkerTypeRegistry:
    def __init__(
        self,
        ctx: ManagerContext,
        workers: WorkerRegistry,
        ports: tuple[int, ...] = tuple(range(8092, 8112)),
    ) -> None:
        self._cluster = ctx.cluster
        self._store: RegistryStore = ctx.store.registry
        self._signals = ctx.signals
        self._workers = workers
        self._clock = ctx.clock
        self._objects = ctx.objects
        self._ports = ports
        self._failed: OrderedDict[str, str] = OrderedDict()
        self._given: set[tuple[str | None, int]] = set()

    # types -------------------------------------------------------------------
    def get(self, name: str) -> WorkerType:
        found = self._cluster.worker_types.get(name)
        if found is None:
            known = ", ".join(sorted(self._cluster.worker_types)) or "none yet"
            raise NotFound(f"no worker type {name!r}; known: {known}", name=name)
        return found

    def find(self, name: str) -> WorkerType | None:
        return self._cluster.worker_types.get(name)

    def all(self) -> list[WorkerType]:
        """By name."""
        return sorted(self._cluster.worker_types.values(), key=lambda kind: kind.name)

    async def save(self, worker_type: WorkerType) -> None:
        """Register a type, or replace it; workers that run keep what they have.

        Changed content makes a new version; the same content stays the same one.
        """
        check_scaling(worker_type)
        if worker_type.job_type is not None:
            await self._workers.ensure_job_types([worker_type.job_type])
        entry = WorkerCode(
            worker_type.worker_class, worker_type.params, worker_type.environment
        )
        digest = await self._objects.put(entry.encode())
        known = self._cluster.worker_types.get(worker_type.name)
        versions = known.versions if known else ()
        if not versions or versions[-1] != digest:
            versions = (*versions, digest)
        row = replace(worker_type, versions=versions, created_at=self._clock.now())
        await self._store.save_worker_type(row)
        self._signals.written.tell(NameChanged("worker_type_changed", row.name))
        self._cluster.worker_types[row.name] = row

    async def bind(self, job_type: str, name: str) -> None:
        """Workers launched from this type will serve that job type."""
        await self.save(replace(self.get(name), job_type=job_type))

    async def remove(self, name: str) -> None:
        self.get(name)
        await self._store.delete_worker_type(name)
        self._signals.written.tell(
            NameChanged("worker_type_changed", name, is_removed=True)
        )
        del self._cluster.worker_types[name]

    # launches ----------------------------------------------------------------
    def node(self, name: str) -> NodeLink:
        """A node by its URL, id or name; one that is up before others so called."""
        found = [
            link
            for link in self._cluster.nodes.values()
            if name in (link.node.id, link.node.hostname)
            or _same(name, link.node.labels.get("url"))
        ]
        if not found:
            raise NodeNotFound(f"no node {name!r}", node_url=name)
        return min(found, key=lambda link: link.node.state is not NodeState.ONLINE)

    def by_url(self, url: str) -> WorkerLink | None:
        """The worker of this URL; a living one before those that had it once."""
        workers = self._cluster.workers.values()
        found = [w for w in workers if _same(url, w.worker.spec.url)]
        return min(found, key=_is_gone, default=None)

    async def launch(
        self,
        node_url: str,
        type_name: str,
        name: str | None,
        url: str | None,
        job_type: str | None = None,
        gpus: str = "",
    ) -> str:
        """Want a worker of a type, or of `type@version`, on a node; the launch id.

        It serves its type's job type, and `job_type`.
        """
        node, worker_type = self.node(node_url), await self._at_version(type_name)
        node.check_open()
        holders = self._holders(node)
        if url is None:
            ports = _own_ports(node) or self._ports
            port = self._free(node, ports, holders)
            if port is None:
                span = f"{ports[0]}-{ports[-1]}"
                return self._fail(f"no free port in {span} on {node_url}")
            url = f"http://{_host(node)}:{port}"
        holder = holders.get(_port(url) or 0)
        if holder is not None and not _is_gone(holder):
            return self._fail(f"the port of {url} is taken by another worker")
        if holder is not None:
            # It may come back, and would find its port taken.
            await self._workers.stop(holder.id)
        types = tuple(t for t in (worker_type.job_type, job_type) if t)
        spec = _spec(worker_type, f"{LAUNCHED}{name or new_id(worker_type.name)}")
        spec = replace(
            spec,
            job_types=tuple(dict.fromkeys(types)),
            url=url,
            gpus=gpus or spec.gpus,
        )
        return (await self._workers.launch(node.node.id, spec)).id

    async def start(self, node_id: str, type_name: str) -> WorkerLink:
        """Want a worker of a type on a node that it may leave; it has no URL.

        Raises:
            Conflict: the node is held.
        """
        worker_type = self.get(type_name)
        spec = _spec(worker_type, f"{MOVABLE}{new_id(worker_type.name)}")
        return await self._workers.launch(node_id, spec)

    async def scale(self, name: str, least: int, most: int | None) -> WorkerType:
        """Let demand decide how many workers a type has; without `most`, no more."""
        kind = replace(self.get(name), min_workers=least, max_workers=most)
        check_served(kind)
        await self.save(kind)
        return self.get(name)

    async def _at_version(self, text: str) -> WorkerType:
        name, _, number = text.partition("@")
        newest = self.get(name)
        if not number:
            return newest
        if not number.isascii() or not number.isdigit():
            raise InvalidField("a version is a number: TYPE@2", field="worker_type")
        if not 1 <= int(number) <= newest.version:
            raise NotFound(
                f"worker type {name!r} has versions 1 to {newest.version}", name=name
            )
        digest = newest.versions[int(number) - 1]
        entry = WorkerCode.decode(await self._objects.get(digest))
        return replace(
            newest,
            worker_class=entry.worker_class,
            params=entry.params,
            environment=entry.environment,
            versions=newest.versions[: int(number)],
        )

    def _holders(self, node: NodeLink) -> dict[int, WorkerLink]:
        """Who has which port of the node's machine; the living before the dead."""
        links = [
            link
            for other in self._cluster.nodes.values()
            if other is node or _is_one_machine(other, node)
            for link in self._cluster.of_node(other.node.id)
        ]
        # The last one written stays.
        links.sort(key=_is_gone, reverse=True)
        found = {_port(link.worker.spec.url): link for link in links}
        return {port: link for port, link in found.items() if port is not None}

    def _free(
        self, node: NodeLink, ports: Sequence[int], holders: Mapping[int, WorkerLink]
    ) -> int | None:
        """A port nobody has, or else that of a worker that goes or is gone.

        On this machine strangers' ports are seen and left out; elsewhere a launch
        that meets one fails, and says so.
        """
        machine = node.node.address
        unheld = [p for p in ports if p not in holders]
        free = [p for p in unheld if not (_is_here(node) and _is_in_use(p))]
        ours = [p for p in unheld if (machine, p) in self._given]
        dead = [p for p in ports if p in holders and _is_gone(holders[p])]
        port = next(iter((*free, *ours, *dead)), None)
        if port is not None:
            self._given.add((machine, port))
        return port

    def _fail(self, reason: str) -> str:
        launch_id = new_id("launch")
        self._failed[launch_id] = reason
        while len(self._failed) > _FAILURES_KEPT:
            self._failed.popitem(last=False)
        return launch_id

    def launch_of(self, launch_id: str) -> LaunchProgress:
        if (reason := self._failed.get(launch_id)) is not None:
            return LaunchProgress(launch_id, "failed", error=reason)
        link = self._cluster.workers.get(launch_id)
        if link is None:
            raise NotFound(f"no launch {launch_id!r}", launch_id=launch_id)
        worker = link.worker
        return LaunchProgress(launch_id, launch_status(worker), link, worker.error)

    async def connect(self, job_type: str, url: str) -> None:
        """Let a worker serve a job type, now or as soon as there is one."""
        await self._workers.ensure_job_types([job_type])
        link = self.by_url(url)
        if link is None:
            self._workers.connecting.expect(url, job_type)
        else:
            await self._workers.serve(link, job_type)


def _spec(worker_type: WorkerType, name: str) -> WorkerSpec:
    return WorkerSpec(
        name,
        worker_type.worker_class,
        (worker_type.job_type,) if worker_type.job_type else (),
        worker_type.params,
        worker_type=worker_type.name,
        environment=worker_type.environment,
        entry=worker_type.entry,
        gpus=worker_type.gpus,
    )


def _is_gone(link: WorkerLink) -> bool:
    """Is there no process any more that could hold its port?"""
    worker = link.worker
    return worker.state in _GONE and worker.incarnation is None


def _is_one_machine(one: NodeLink, other: NodeLink) -> bool:
    return one.node.address is not None and one.node.address == other.node.address


def _own_ports(node: NodeLink) -> tuple[int, ...]:
    """The ports a node was launched with for its workers; none when it had no say."""
    words = node.node.labels.get(PORTS, "").split(",")
    return tuple(int(word) for word in words if word.isascii() and word.isdigit())


def _is_here(node: NodeLink) -> bool:
    address = node.node.address or ""
    return address in ("127.0.0.1", "::1")


def _is_in_use(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def _same(one: str, other: str | None) -> bool:
    return other is not None and one.rstrip("/") == other.rstrip("/")


def _port(url: str | None) -> int | None:
    try:
        return urlsplit(url).port if url else None
    except ValueError:
        raise InvalidField(f"{url!r} is not a URL", field="worker_url") from None


def _host(node: NodeLink) -> str:
    return urlsplit(node.node.labels.get("url", "")).hostname or "localhost"
