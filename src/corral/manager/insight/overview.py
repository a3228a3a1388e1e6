"""The cluster in numbers, as they are now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from corral.core.nodes.node import NodeState
from corral.core.tasks.task import State
from corral.manager.cluster import gpus
from corral.manager.context import ManagerContext


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    """Of `nodes` only those that could run something; `serving` are workers that can
    take tasks. Memory is that of online nodes.
    """

    health: str
    nodes: int
    online: int
    workers: int
    serving: int
    tasks: Mapping[State, int]
    gpu_use_percent: float
    gpu_total_mb: float
    gpu_offered_mb: float
    memory_mb: float
    memory_used_mb: float
    uptime_s: float

    @property
    def is_well(self) -> bool:
        """All that should be there is."""
        return self.serving == self.workers and self.online == self.nodes


async def overview_of(
    ctx: ManagerContext, started_at: datetime, health: str
) -> ClusterOverview:
    cluster = ctx.cluster
    tasks = await ctx.store.tasks.count_tasks()
    # The manager's own machine runs nothing, and does not count.
    nodes = [n for n in cluster.nodes.values() if not n.is_own]
    online = [n for n in nodes if n.node.state is NodeState.ONLINE]
    samples = [n.sample for n in online if n.sample is not None]
    workers = [link.worker for link in cluster.workers.values()]
    return ClusterOverview(
        health=health,
        nodes=len(nodes),
        online=len(online),
        workers=len(workers),
        serving=sum(map(cluster.is_serving, workers)),
        tasks=tasks,
        gpu_use_percent=gpus.utilization(nodes),
        gpu_total_mb=gpus.memory_total_mb(nodes),
        gpu_offered_mb=gpus.memory_offered_mb(nodes),
        memory_mb=sum(s.memory_total_mb for s in samples),
        memory_used_mb=sum(s.memory_used_mb for s in samples),
        uptime_s=(ctx.clock.now() - started_at).total_seconds(),
    )
