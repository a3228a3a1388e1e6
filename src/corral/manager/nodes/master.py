"""The manager's own machine as a node: `master`, one row, measured like any other.

An agent on the same machine takes the role over, and gives it back when it is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from corral.core.nodes.node import MachineReading, NodeRecord, NodeState, Sample
from corral.manager.cluster.state import NodeLink
from corral.manager.context import ManagerContext
from corral.store.base import Event, RegistryStore

log = logging.getLogger(__name__)
MASTER, WORKER = "master", "worker"
MACHINE = "machine"
"""The capability in which a node tells which machine it is on."""
STEP_S = 1.0
_AGENT_GRACE_S = 60.0
_PRESENT = (NodeState.ONLINE, NodeState.SUSPECT)


@dataclass(frozen=True, slots=True)
class MasterConfig:
    """This machine. `machine` tells it from others, `read` takes a sample of it.

    With `expects_agent` an agent is on its way and will be the master.
    """

    machine: str
    hostname: str
    read: Callable[[], MachineReading]
    version: str | None = None
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    expects_agent: bool = False

    @property
    def node_id(self) -> str:
        return f"n_master_{self.machine[:12]}"


class Master:
    """Keeps the manager's row; without a configuration it keeps none."""

    def __init__(
        self, ctx: ManagerContext, config: MasterConfig | None, sample_s: float
    ) -> None:
        self._cluster = ctx.cluster
        self._store: RegistryStore = ctx.store.registry
        self._clock = ctx.clock
        self._record = ctx.record
        self._config = config
        self._sample_s = sample_s
        self._began = ctx.clock.monotonic()
        self._sampled_at: float | None = None

    def role_of(self, node_id: str, wanted: str, machine: str | None) -> str:
        """The node type of an agent that registers: one of this machine is master.

        The agent that `corral up` started comes first, then whoever is there.
        """
        config = self._config
        if config is None or machine != config.machine:
            return WORKER
        others = [n for n in self._agents() if n.node.id != node_id]
        is_taken = any(_is_master(n) and n.node.state in _PRESENT for n in others)
        return MASTER if wanted == MASTER or not is_taken else WORKER

    async def step(self) -> None:
        if self._config is None:
            return
        masters = [n for n in self._agents() if _is_master(n)]
        if self._has_agent(masters):
            await self._withdraw()
            return
        for link in masters:
            await self._save(link, replace(link.node, node_type=WORKER))
        await self._keep(self._config)

    def _has_agent(self, masters: list[NodeLink]) -> bool:
        """Is an agent the master of this machine, or on its way?"""
        if any(n.node.state in _PRESENT for n in masters):
            return True
        if self._config is None or not self._config.expects_agent:
            return False
        is_starting = self._clock.monotonic() - self._began < _AGENT_GRACE_S
        return bool(masters) or is_starting

    def _agents(self) -> list[NodeLink]:
        machine = self._config.machine if self._config else None
        return [
            n
            for n in self._cluster.nodes.values()
            if not n.is_own and n.node.capabilities.get(MACHINE) == machine
        ]

    async def _keep(self, config: MasterConfig) -> None:
        now, at = self._clock.monotonic(), self._clock.now()
        link = self._cluster.nodes.get(config.node_id)
        if link is None or not link.is_own:
            link = await self._appear(config, link)
        link.seen = now
        if self._sampled_at is not None and now - self._sampled_at < self._sample_s:
            return
        self._sampled_at = now
        link.node = replace(link.node, last_heartbeat=at)
        link.is_stamped = False
        try:
            read = config.read()
        except OSError as error:
            log.warning("cannot sample this machine: %s", error)
            return
        link.sample = Sample(**asdict(read), node_id=link.node.id, at=at)
        link.is_sample_kept = False

    async def _appear(self, config: MasterConfig, link: NodeLink | None) -> NodeLink:
        """The row, as it was or for the first time."""
        at = self._clock.now()
        node = NodeRecord(
            config.node_id,
            config.hostname,
            MASTER,
            joined_at=link.node.joined_at if link else at,
            version=config.version,
            capabilities={**config.capabilities, MACHINE: config.machine},
            last_heartbeat=at,
        )
        if link is None:
            link = NodeLink(node, self._clock.monotonic())
            title = f"{config.hostname} is the manager's machine"
            event = Event("node_joined", title, source_node_id=node.id, at=at)
            await self._record([event])
        link.is_own = True
        self._cluster.nodes[node.id] = link
        await self._save(link, node)
        return link

    async def _withdraw(self) -> None:
        """One row a machine: an agent's node is the master now."""
        config = self._config
        if config is None or config.node_id not in self._cluster.nodes:
            return
        del self._cluster.nodes[config.node_id]
        self._sampled_at = None
        await self._store.delete_node(config.node_id)

    async def _save(self, link: NodeLink, node: NodeRecord) -> None:
        link.node = node
        await self._store.save_node(node)


def _is_master(link: NodeLink) -> bool:
    return link.node.node_type == MASTER
