"""Nodes: joining, registering, that they live, and what each of them should run.

What else a heartbeat says is in `heartbeat.py`; silence is judged in `liveness.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from corral.core.nodes.node import NodeRecord, NodeState, Sample
from corral.core.nodes.worker import WorkerRecord, WorkerSpec, WorkerState
from corral.errors import Conflict, Unauthenticated
from corral.manager.clock import new_id
from corral.manager.cluster.state import NodeLink
from corral.manager.context import ManagerContext
from corral.manager.workers.registry import WorkerRegistry
from corral.store.base import Event, RegistryStore
from corral.wire.agent import Beat


class NodeRegistry:
    def __init__(self, ctx: ManagerContext, workers: WorkerRegistry) -> None:
        self._cluster = ctx.cluster
        self._store: RegistryStore = ctx.store.registry
        self._clock = ctx.clock
        self._record = ctx.record
        self._workers = workers

    async def join(self, hostname: str, node_type: str = "worker") -> NodeRecord:
        node = NodeRecord(
            id=new_id("n"),
            hostname=hostname,
            node_type=node_type,
            state=NodeState.LOST,
            joined_at=self._clock.now(),
        )
        await self._store.save_node(node)
        self._cluster.nodes[node.id] = NodeLink(node, self._clock.monotonic())
        await self._tell("node_joined", f"{hostname} joined as {node.id}", node.id)
        return node

    def types_of(self, spec: WorkerSpec) -> tuple[str, ...]:
        """What a worker would serve: also what is connected to its URL, and waits."""
        return (*spec.job_types, *self._workers.connecting.awaited(spec.url))

    async def register(
        self, node_id: str, facts: Mapping[str, Any], declared: Sequence[WorkerSpec]
    ) -> NodeLink:
        """An agent started: a new epoch; what its former self held goes back."""
        link = self._cluster.node(node_id)
        async with link.registering:
            if link.is_forgotten:
                await self._turn_away(link)
            await self._register(link, facts, declared)
        return link

    async def _turn_away(self, link: NodeLink) -> None:
        """An agent started anew while its node leaves: it has nothing left to stop."""
        for worker in self._cluster.of_node(link.node.id):
            await self._workers.retire(worker, WorkerState.STOPPED)
        link.is_leave_told = True
        raise Unauthenticated(
            "this node was removed from the cluster; join again with a new token",
            is_removed=True,
        )

    async def _register(
        self, link: NodeLink, facts: Mapping[str, Any], declared: Sequence[WorkerSpec]
    ) -> None:
        link.node = replace(
            link.node,
            node_type=facts.get("node_type") or link.node.node_type,
            version=facts.get("version"),
            address=facts.get("address"),
            labels=dict(facts.get("labels") or {}),
            taints=tuple(facts.get("taints") or ()),
            capabilities=dict(facts.get("capabilities") or {}),
            epoch=link.node.epoch + 1,
            state=NodeState.ONLINE,
            left_at=None,
            last_heartbeat=self._clock.now(),
        )
        link.seen = self._clock.monotonic()
        link.is_leaving = link.is_leave_told = False
        # The epoch counts in memory before the write, and in the store before anything
        # goes back: beats of the agent's former self are refused all along. If we die
        # between, its next beat is refused too, and it registers again.
        await self._store.save_node(link.node)
        self._cluster.mark(link.node)
        for worker in self._cluster.of_node(link.node.id):
            await self._workers.retire(worker, WorkerState.STARTING)
        await self._workers.declare(link, declared)
        await self._tell("node_registered", f"{link.node.hostname} is up", link.node.id)

    async def desired(
        self, node_id: str, since: int, wait_s: float
    ) -> tuple[int, list[WorkerRecord]]:
        """The workers a node should run; waits while `since` is still the newest."""
        link = self._cluster.node(node_id)

        async def version() -> int:
            return link.desired_version

        await link.changed.poll(version, lambda newest: newest != since, wait_s)
        links = [w for w in self._cluster.of_node(node_id) if not w.is_parked]
        workers = [w.worker for w in links if w.worker.wanted]
        return link.desired_version, workers

    async def beat(self, node_id: str, beat: Beat) -> tuple[int, list[tuple[str, int]]]:
        """Note that a node lives; (desired version, attempts it must drop)."""
        link = self._cluster.node(node_id)
        if beat.epoch != link.node.epoch:
            raise Conflict(
                f"epoch {beat.epoch} of node {node_id} is over; register again",
                epoch=link.node.epoch,
            )
        # Before any await: a slow store must not make a living node look silent. The
        # row is stamped by `readings.py`, many nodes in one commit.
        link.seen = self._clock.monotonic()
        link.is_stamped = False
        if beat.sample is not None:
            now = self._clock.now()
            link.sample = Sample(**asdict(beat.sample), node_id=node_id, at=now)
            link.is_sample_kept = False
        if link.node.state is not NodeState.ONLINE:
            link.node = replace(link.node, state=NodeState.ONLINE)
            await self._store.save_node(link.node)
        link.node = replace(link.node, last_heartbeat=self._clock.now())
        await self._retire_unlisted(node_id, {each.worker_id for each in beat.workers})
        drop: list[tuple[str, int]] = []
        for each in beat.workers:
            worker = self._cluster.workers.get(each.worker_id)
            if worker is not None and worker.worker.node_id == node_id:
                drop += await self._workers.beat(worker, each)
        return link.desired_version, drop

    async def _retire_unlisted(self, node_id: str, listed: set[str]) -> None:
        for worker in self._cluster.of_node(node_id):
            if worker.worker.incarnation is not None and worker.id not in listed:
                await self._workers.retire(worker, WorkerState.STOPPED)

    async def _tell(
        self, kind: str, title: str, node_id: str, severity: str = "info"
    ) -> None:
        event = Event(kind, title, severity, node_id, at=self._clock.now())
        await self._record([event])
