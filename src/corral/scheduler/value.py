"""What goes into the scheduler and what comes out. Times are seconds since epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from corral.core.constraint import Constraint
from corral.core.job_type import QueueOrder

PRIVATE = "@"
"""Begins the name of a queue that not every worker of a type serves, and of no type."""


def private_queue(worker_id: str) -> str:
    """The queue of tasks that only this worker may run."""
    return PRIVATE + worker_id


def strict_queue(job_type: str, constraint: Constraint) -> str:
    """The queue of a type's tasks that only some nodes may run."""
    return f"{PRIVATE}{PRIVATE}{job_type} {constraint.text}"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queued attempt as the scheduler sees it.

    With a `worker_id` it waits for that worker alone, whatever types that one serves;
    with a `constraint` for a worker on a node that meets it.
    """

    task_id: str
    attempt: int
    job_type: str
    seq: int
    priority: int = 0
    run_after: float = 0.0
    deadline: float | None = None
    needs: frozenset[str] = frozenset()
    size: int = 0
    worker_id: str | None = None
    constraint: Constraint | None = None

    @property
    def queue(self) -> str:
        """Where it stands in line."""
        if self.worker_id:
            return private_queue(self.worker_id)
        if self.constraint is not None:
            return strict_queue(self.job_type, self.constraint)
        return self.job_type


@dataclass(frozen=True, slots=True)
class TasksQueued:
    tasks: tuple[Waiting, ...]


@dataclass(frozen=True, slots=True)
class TasksGone:
    """Tasks that no longer wait: placed by other means, cancelled, ended."""

    task_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DependencyMet:
    task_id: str


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """A worker incarnation can take orders; `open_orders` it already has."""

    worker_id: str
    node_id: str
    job_types: frozenset[str]
    slots: int = 1
    open_orders: int = 0


@dataclass(frozen=True, slots=True)
class WorkerBroken:
    """A worker that should serve these types but cannot, and why.

    `reason` is the one word for it that its tasks are given.
    """

    worker_id: str
    job_types: frozenset[str]
    error: str
    reason: str = "worker_error"


@dataclass(frozen=True, slots=True)
class WorkerGone:
    worker_id: str


@dataclass(frozen=True, slots=True)
class WorkerAway:
    """A worker that was stopped while its node is held, and comes back after."""

    worker_id: str
    node_id: str
    job_types: frozenset[str]


@dataclass(frozen=True, slots=True)
class NodeHeld:
    """Workers of this node get nothing new, for this reason; None ends that."""

    node_id: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class NodeMarked:
    """The labels and taints of a node, all of them."""

    node_id: str
    labels: Mapping[str, str]
    taints: frozenset[str]


@dataclass(frozen=True, slots=True)
class OrderClosed:
    """Every attempt of one order of this worker has ended."""

    worker_id: str


@dataclass(frozen=True, slots=True)
class TasksRan:
    """`count` attempts of a type took `seconds` together on a worker."""

    job_type: str
    worker_id: str
    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Paused:
    """While paused nothing is handed out (drain)."""

    is_paused: bool


@dataclass(frozen=True, slots=True)
class TypeOrdered:
    """Take the waiting tasks of this type in this order from now on."""

    job_type: str
    order: QueueOrder


@dataclass(frozen=True, slots=True)
class TypesServed:
    """A worker goes on, but with these types."""

    worker_id: str
    job_types: frozenset[str]


SchedulerEvent = (
    TasksQueued
    | TasksGone
    | DependencyMet
    | WorkerReady
    | WorkerBroken
    | WorkerGone
    | WorkerAway
    | NodeHeld
    | NodeMarked
    | OrderClosed
    | TasksRan
    | Paused
    | TypeOrdered
    | TypesServed
)


@dataclass(frozen=True, slots=True)
class PlannedOrder:
    """These waiting attempts go to this worker in one message."""

    worker_id: str
    tasks: tuple[Waiting, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """`next_wake` is when time alone will change the plan."""

    orders: tuple[PlannedOrder, ...] = ()
    expired: tuple[Waiting, ...] = ()
    next_wake: float | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a task is not running yet."""

    reason: str
    message: str
    details: dict[str, Any] = field(default_factory=dict)
