"""What autoscaling works on: a scene as it changes, and what it knows of a type."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from corral.core.tasks.options import Constraint
from corral.scheduler.scaling.demand import Demand
from corral.scheduler.scaling.values import (
    NodeRoom,
    ScaledType,
    ScaledWorker,
    Scene,
    Standing,
)

_MOST_BACKOFF_S = 600.0


@dataclass(slots=True)
class TypeMemory:
    """What is remembered of one type."""

    changed_at: float = -math.inf
    needed_at: list[float] = field(default_factory=list)
    """When so many workers and one more were last needed, by number."""
    ran: dict[str, int] = field(default_factory=dict)
    broken: dict[str, float] = field(default_factory=dict)
    failures: int = 0
    retry_at: float = -math.inf
    error: str = ""
    avoid: Counter[str] = field(default_factory=Counter)

    def follow(
        self, workers: Sequence[ScaledWorker], now: float, base_s: float
    ) -> None:
        """Take note of launches that failed, and of those that did not."""
        broken = [w for w in workers if w.standing is Standing.BROKEN]
        for worker in broken:
            if worker.worker_id not in self.broken:
                self.fail(worker.node_id, now, base_s, worker.error)
        self.broken = {w.worker_id: self.broken.get(w.worker_id, now) for w in broken}
        for worker in workers:
            if worker.standing is Standing.SERVING:
                self.avoid.pop(worker.node_id, None)
                if not broken and now >= self.retry_at:
                    self.failures = 0

    def fail(self, node_id: str, now: float, base_s: float, error: str) -> None:
        self.failures += 1
        pause_s = max(base_s, 1.0) * 2.0 ** min(self.failures - 1, 20)
        self.retry_at = now + min(pause_s, _MOST_BACKOFF_S)
        self.avoid[node_id] += 1
        self.error = error

    def has_run(self, workers: Sequence[ScaledWorker]) -> bool:
        """Did one of them end a task since this was asked last?"""
        before, self.ran = self.ran, {w.worker_id: w.ran for w in workers}
        return any(count > before.get(name, 0) for name, count in self.ran.items())

    def need(self, there: int, needed: int, now: float) -> None:
        """So many of those there are in use; a new one has its time to be needed."""
        del self.needed_at[there:]
        self.needed_at += [now] * (there - len(self.needed_at))
        for number in range(min(needed, there)):
            self.needed_at[number] = now

    def surplus(self, now: float, idle_s: float) -> int:
        """How many were not needed for so long."""
        return sum(now - at >= idle_s for at in self.needed_at)


class Stage:
    """A scene in which decisions already made have happened."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.rooms = {room.node_id: room for room in scene.nodes}
        self.total = scene.total
        kinds = {kind.name: kind for kind in scene.types}
        self._starting = [
            (kinds[w.type_name].job_types, w.node_id)
            for w in scene.workers
            if w.standing is Standing.STARTING and w.type_name in kinds
        ]

    def launch(self, kind: ScaledType, room: NodeRoom) -> None:
        self.rooms[room.node_id] = room.less(kind.gpus)
        self._starting.append((kind.job_types, room.node_id))
        self.total += 1

    def starting(self, demand: Demand) -> int:
        """Workers that will do these tasks when they are up."""
        return sum(
            demand.job_type in job_types and self.admits(node_id, demand.constraint)
            for job_types, node_id in self._starting
        )

    def admits(self, node_id: str, constraint: Constraint) -> bool:
        room = self.rooms.get(node_id)
        return room is not None and room.admits(constraint)

    def choose(
        self, kind: ScaledType, constraint: Constraint, avoid: Counter[str]
    ) -> NodeRoom | None:
        """The emptiest node that fits; tainted ones, and where it failed, last."""
        fit = (
            room
            for room in self.rooms.values()
            if room.fits(kind.gpus) and room.admits(constraint)
        )
        return min(
            fit,
            key=lambda r: (avoid[r.node_id], bool(r.taints), r.workers, r.node_id),
            default=None,
        )

    def wait_s(self, demand: Demand) -> float:
        """Seconds until what waits has been done, with those that are starting."""
        starting = self.starting(demand)
        if demand.speed + starting <= 0:
            return math.inf
        if demand.work_s is None:
            return demand.waited_s
        first_s = 0.0 if starting else demand.soonest_s
        return first_s + demand.work_s / (demand.speed + starting)
