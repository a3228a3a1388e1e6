"""What autoscaling is told, and what it says: workers to launch, workers to retire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from corral.core.nodes.labels import ANYWHERE, Constraint
from corral.scheduler.scaling.demand import Demand


class ScaledWorkerState(StrEnum):
    """How a worker stands, as far as autoscaling cares."""

    SERVING = "serving"
    STARTING = "starting"
    BROKEN = "broken"
    LEAVING = "leaving"
    """It gets nothing new and goes when it has finished."""
    OUT = "out"
    """Its node is held or lost: it gets nothing, and counts for nothing."""


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """When to add workers and when to let them go; times are seconds.

    `most` is how many workers there may be in the cluster before none is added.
    """

    wait_s: float = 30.0
    idle_s: float = 300.0
    cooldown_s: float = 30.0
    most: int = 10


@dataclass(frozen=True, slots=True)
class ScaledType:
    """A worker type with limits; its workers have so many cards for themselves."""

    name: str
    job_types: frozenset[str]
    least: int
    most: int
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class ScaledWorker:
    """A worker of such a type; one that `is_kept` must not be retired.

    `ran` counts the tasks it has ended.
    """

    worker_id: str
    type_name: str
    node_id: str
    standing: ScaledWorkerState = ScaledWorkerState.SERVING
    is_busy: bool = False
    is_kept: bool = False
    models: int = 0
    ran: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """A node: what it has left for workers.

    `cards` are those nobody has, `seats` is for workers without cards of their own,
    `places` for any. One that is not `is_open` gets none.
    """

    node_id: str
    cards: int = 0
    seats: int = 0
    places: int = 1_000_000
    workers: int = 0
    is_open: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: frozenset[str] = frozenset()

    def admits(self, constraint: Constraint) -> bool:
        return not constraint.missing(self.labels) and not constraint.repelled(
            self.taints
        )

    def fits(self, gpus: int) -> bool:
        has_own = self.cards >= gpus if gpus else self.seats > 0
        return self.is_open and has_own and self.places > 0

    def limited(self, places: int) -> NodeRoom:
        return replace(self, places=places)

    def less(self, gpus: int) -> NodeRoom:
        """What is left after one more worker."""
        return replace(
            self,
            cards=self.cards - gpus,
            seats=self.seats - (not gpus),
            places=self.places - 1,
            workers=self.workers + 1,
        )


@dataclass(frozen=True, slots=True)
class ScalingInput:
    """The cluster at one moment; `total` counts the workers of all types and of none.

    `now` only ever grows; where it begins does not matter.
    """

    now: float
    types: tuple[ScaledType, ...]
    workers: tuple[ScaledWorker, ...]
    nodes: tuple[NodeRoom, ...]
    demands: tuple[Demand, ...]
    total: int


@dataclass(frozen=True, slots=True)
class LaunchDecision:
    type_name: str
    node_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class RetireDecision:
    """Give this worker nothing new, let it finish, then stop it."""

    type_name: str
    worker_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class TypeNow:
    """How a type stands: `wait_s` is infinite when nobody serves what waits for it.

    `blocked` says why it has no more workers although it should.
    """

    name: str
    workers: int
    serving: int
    starting: int
    waiting: int
    wait_s: float
    blocked: str = ""


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    launches: tuple[LaunchDecision, ...] = ()
    retires: tuple[RetireDecision, ...] = ()
    types: tuple[TypeNow, ...] = ()


def place_words(constraint: Constraint) -> str:
    """Where tasks may go, in words, as the end of a sentence."""
    if constraint == ANYWHERE:
        return ""
    words = [f"{key}={value}" for key, value in constraint.labels]
    return f" with {', '.join(words)}" if words else ""
