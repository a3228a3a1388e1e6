"""How a machine becomes a node, and what its agent is told when it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from corral import __version__
from corral.core.access.key import JoinGrant, Key, Scope
from corral.core.nodes.version import fit
from corral.core.nodes.worker import WorkerRecord, WorkerSpec
from corral.manager.access.keys import Keys
from corral.manager.context import ManagerContext
from corral.manager.nodes.heartbeat import Heartbeats
from corral.manager.nodes.master import MACHINE, Master
from corral.manager.nodes.registry import NodeRegistry


@dataclass(frozen=True, slots=True)
class AgentStart:
    """What an agent says when it starts. `machine` tells which one it is on, `clock`
    is its time when it said so.
    """

    version: str | None
    address: str | None
    node_type: str
    machine: str | None
    clock: float | None
    workers: Sequence[WorkerSpec] = ()
    taints: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    capabilities: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DesiredState:
    """What a node should run, and which quarantines of its cards are lifted.

    An agent that `is_leaving` stops; one that `is_forgotten` is no node any more.
    """

    version: int
    workers: Sequence[WorkerRecord]
    releases: Mapping[str, datetime]
    is_leaving: bool
    is_forgotten: bool


class NodeJoin:
    def __init__(
        self,
        ctx: ManagerContext,
        nodes: NodeRegistry,
        heartbeats: Heartbeats,
        master: Master,
        keys: Keys,
    ) -> None:
        self._cluster = ctx.cluster
        self._nodes = nodes
        self._heartbeats = heartbeats
        self._master = master
        self._keys = keys

    async def join(self, hostname: str, token: Key) -> tuple[str, str]:
        """Spend a token on a new node; its id, and the text of its key.

        Raises:
            Unauthenticated: the token was spent meanwhile.
        """
        await self._keys.spend(token)
        node = await self._nodes.join(hostname)
        name = f"node {node.id}"
        _, text = await self._keys.create(
            Scope.NODE, name, node_id=node.id, granted=token.granted
        )
        return node.id, text

    async def register(
        self, node_id: str, said: AgentStart, granted: JoinGrant | None = None
    ) -> tuple[int, DesiredState]:
        """An agent started: its epoch, and what it should run.

        Raises:
            NodeNotFound: there is no such node.
            ClaimRefused: it says more of itself than it was `granted`.
        """
        labels, taints = dict(said.labels), list(said.taints)
        if granted is not None:
            types = {t for spec in said.workers for t in self._nodes.types_of(spec)}
            granted.check_claim(labels, types)
            labels |= granted.labels
            taints += [taint for taint in granted.taints if taint not in taints]
        role = self._master.role_of(node_id, said.node_type, said.machine)
        facts = {
            "version": said.version,
            "address": said.address,
            "labels": labels,
            "taints": taints,
            "capabilities": {**said.capabilities, MACHINE: said.machine},
            "node_type": role,
        }
        link = await self._nodes.register(node_id, facts, said.workers)
        await self._heartbeats.note_clock(link, said.clock)
        await self._heartbeats.note_version(link, fit(said.version, __version__))
        # One that is asked to leave in this moment hears of it when it asks again.
        desired = await self._desired(node_id, -1, 0.0, is_leaving=False)
        return link.node.epoch, desired

    async def desired(self, node_id: str, since: int, wait_s: float) -> DesiredState:
        """What a node should run; waits while `since` is still the newest.

        Raises:
            NodeNotFound: there is no such node, or no more.
        """
        return await self._desired(node_id, since, wait_s)

    async def _desired(
        self, node_id: str, since: int, wait_s: float, is_leaving: bool | None = None
    ) -> DesiredState:
        version, workers = await self._nodes.desired(node_id, since, wait_s)
        link = self._cluster.node(node_id)
        if is_leaving is None:
            is_leaving = link.is_leave_told = link.is_leaving
        releases = dict(link.gpu_releases)
        return DesiredState(version, workers, releases, is_leaving, link.is_forgotten)
