"""The cluster as the rules of its health see it, taken from what the manager knows."""

from __future__ import annotations

from collections import deque

from corral.core.insight.health import (
    ClusterSnapshot,
    EndedAttempts,
    NodeReading,
    OpenBreaker,
)
from corral.core.nodes.worker import WorkerState
from corral.core.tasks.job_type import OWN_TYPES
from corral.manager.cluster.state import NodeLink
from corral.manager.context import ManagerContext

WINDOW_S = 300.0
"""How far back ended attempts count."""


class HealthSnapshot:
    """`take` it again and again; it looks at nodes and workers, never at tasks."""

    def __init__(self, ctx: ManagerContext) -> None:
        self._cluster = ctx.cluster
        self._clock = ctx.clock
        self._began = ctx.clock.monotonic()
        self._counted: dict[str, tuple[int, int]] = {}
        self._ended: deque[tuple[float, int, int]] = deque()

    def take(self) -> ClusterSnapshot:
        cluster = self._cluster
        workers = [link.worker for link in cluster.workers.values()]
        waiting = cluster.scheduler.waiting_count()
        return ClusterSnapshot(
            nodes=tuple(_reading(link) for link in cluster.nodes.values()),
            breakers=tuple(
                OpenBreaker(link.node.id, breaker.key, breaker.text)
                for link in cluster.nodes.values()
                for breaker in link.breakers or ()
            ),
            broken=tuple(w for w in workers if w.state is WorkerState.ERROR),
            waiting=waiting,
            unserved=self._unserved() if waiting else {},
            ended=self._count(),
            is_mass_loss=cluster.is_mass_loss,
            is_engine_up=cluster.is_engine_up,
        )

    def _unserved(self) -> dict[str, int]:
        cluster = self._cluster
        served = {
            job_type
            for link in cluster.workers.values()
            if cluster.is_serving(link.worker)
            for job_type in link.worker.spec.job_types
        }
        for link in cluster.inside.values():
            served |= cluster.types_for(link.worker.spec.name)
        served |= OWN_TYPES
        waiting = cluster.scheduler.waiting_by_type()
        return {name: n for name, n in waiting.items() if n and name not in served}

    def _count(self) -> EndedAttempts:
        """Attempts that ended since the last look, and all of the last minutes."""
        now, completed, failed = self._clock.monotonic(), 0, 0
        counted: dict[str, tuple[int, int]] = {}
        for link in (*self._cluster.workers.values(), *self._cluster.inside.values()):
            ran_before, failed_before = self._counted.get(link.id, (0, 0))
            completed += max(0, link.ran - ran_before)
            failed += max(0, link.failed - failed_before)
            counted[link.id] = (link.ran, link.failed)
        self._counted = counted
        if completed or failed:
            self._ended.append((now, completed + failed, failed))
        while self._ended and self._ended[0][0] <= now - WINDOW_S:
            self._ended.popleft()
        return EndedAttempts(
            sum(count for _, count, _ in self._ended),
            sum(bad for _, _, bad in self._ended),
            is_full=now - self._began >= WINDOW_S,
        )


def _reading(link: NodeLink) -> NodeReading:
    # No agent speaks of the cards of the manager's own machine.
    is_heard = link.sample is not None and (link.gpus is not None or link.is_own)
    skew_s = link.clock.seconds
    return NodeReading(link.node, link.sample, link.gpus, skew_s, is_heard)
