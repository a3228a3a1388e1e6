"""What goes into the scheduler and what comes out. Times are seconds since epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from corral.core.insight.learned import Learned
from corral.core.tasks.job_type import QueueOrder
from corral.core.tasks.share import Share
from corral.scheduler.place.capacity import NodeOffers
from corral.scheduler.waiting import BOUND as BOUND
from corral.scheduler.waiting import PRIVATE as PRIVATE
from corral.scheduler.waiting import WITH as WITH
from corral.scheduler.waiting import Waiting as Waiting
from corral.scheduler.waiting import private_queue as private_queue


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
class HeldOrder:
    """Attempts a worker was given together before the scheduler knew of it."""

    tasks: tuple[Waiting, ...]
    since: float


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """A worker incarnation can take orders; `open_orders` it already has, and `held`
    says what is in them, the oldest first.

    `memory_mb` is what models may take of its card; None where nobody knows. Of the
    rest, `others_mb` is used by others. `gpus` is how many cards it has for itself.
    One that `is_telling` says itself what it loads and drops; of others it is believed
    that they do what they are told.
    """

    worker_id: str
    node_id: str
    job_types: frozenset[str]
    slots: int = 1
    open_orders: int = 0
    speed: float = 1.0
    memory_mb: float | None = None
    models: frozenset[str] = frozenset()
    others_mb: float = 0.0
    gpus: float = 0.0
    is_telling: bool = False
    held: tuple[HeldOrder, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerBroken:
    """A worker that should serve these types but cannot, and why.

    `reason` is the one word for it that its tasks are given.
    """

    worker_id: str
    job_types: frozenset[str]
    error: str
    reason: str = "worker_error"
    node_id: str = ""


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
    """`count` attempts of a type took `seconds` together on a worker.

    `working_mb` is the most GPU memory that one of them took beside its model, where
    anybody knows.
    """

    job_type: str
    worker_id: str
    count: int
    seconds: float
    model: str | None = None
    units: int = 0
    working_mb: float | None = None


@dataclass(frozen=True, slots=True)
class Recalled:
    """What an earlier scheduler has learned; told before anything else."""

    rows: tuple[Learned, ...]


@dataclass(frozen=True, slots=True)
class ModelKnown:
    """What a model takes: memory, and the time to load it, where known.

    With a `worker_id` that is what it took there.
    """

    model: str
    size_mb: float | None = None
    load_s: float | None = None
    worker_id: str = ""


@dataclass(frozen=True, slots=True)
class ModelsHeld:
    """What a worker has in memory, by its own word."""

    worker_id: str
    models: frozenset[str]


@dataclass(frozen=True, slots=True)
class ModelsPinned:
    """The models a worker must not drop, all of them."""

    worker_id: str
    models: frozenset[str]


@dataclass(frozen=True, slots=True)
class MemoryChanged:
    """What models may take of a worker's card from now on; None: nobody knows.

    `others_mb` is what others use of it: without them there would be so much more.
    """

    worker_id: str
    memory_mb: float | None
    others_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class Paused:
    """While paused nothing is handed out (drain)."""

    is_paused: bool


@dataclass(frozen=True, slots=True)
class TypePaused:
    """While a type is paused none of its tasks is handed out."""

    job_type: str
    is_paused: bool


@dataclass(frozen=True, slots=True)
class ShareSet:
    """How much of the cluster one owner, or all with one label, may have."""

    share: Share


@dataclass(frozen=True, slots=True)
class ShareGone:
    name: str


@dataclass(frozen=True, slots=True)
class ShareUsed:
    """What a share has used of a day (days since epoch) before this scheduler began."""

    name: str
    day: int
    gpu_seconds: float


@dataclass(frozen=True, slots=True)
class TasksTaken:
    """Attempts that are with a worker already, by other means than a plan."""

    worker_id: str
    tasks: tuple[Waiting, ...]
    gpus: float = 0.0
    node_id: str = ""
    cards: tuple[str, ...] = ()
    """Of a task that took some of its node's, by id."""


@dataclass(frozen=True, slots=True)
class NodeWithdrawn:
    """It is not known any more what this node has for tasks with needs."""

    node_id: str


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """A task ran out of GPU memory where it was: the next must get more."""

    task_id: str
    job_type: str
    model: str | None
    worker_id: str


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """A task is no longer with its worker, which worked on it for so long.

    One that was told to stop `lingers` until its worker says that it has: so long it
    keeps its GPUs.
    """

    task_id: str
    seconds: float = 0.0
    attempt: int = 0
    lingers: bool = False


@dataclass(frozen=True, slots=True)
class CardsBack:
    """An attempt that was told to stop has stopped."""

    task_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class TypeOrdered:
    """Take the waiting tasks of this type in this order from now on."""

    job_type: str
    order: QueueOrder


@dataclass(frozen=True, slots=True)
class TypeBatched:
    """So many tasks of this type may go in one order, however long they take.

    With None an order has as many as its time allows.
    """

    job_type: str
    limit: int | None


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
    | Recalled
    | Paused
    | TypeOrdered
    | TypeBatched
    | TypePaused
    | ShareSet
    | ShareGone
    | ShareUsed
    | TasksTaken
    | AttemptEnded
    | TypesServed
    | ModelKnown
    | ModelsHeld
    | ModelsPinned
    | MemoryChanged
    | NodeOffers
    | NodeWithdrawn
    | OutOfMemory
    | CardsBack
)


@dataclass(frozen=True, slots=True)
class PlannedOrder:
    """These waiting attempts go to this worker in one message.

    Before them it drops the models of `unload` and loads `load`, if they say so.
    """

    worker_id: str
    tasks: tuple[Waiting, ...]
    load: str | None = None
    unload: tuple[str, ...] = ()
    cards: tuple[str, ...] = ()
    """What its one task was given of its node's GPUs, by id."""
    lead: str = ""
    """The worker that the first member of its gang goes to."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Take this attempt from its worker, uncharged: a critical task needs the room."""

    worker_id: str
    task_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Plan:
    """`next_wake` is when time alone will change the plan."""

    orders: tuple[PlannedOrder, ...] = ()
    expired: tuple[Waiting, ...] = ()
    next_wake: float | None = None
    preempt: tuple[Stop, ...] = ()


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a task is not running yet."""

    reason: str
    message: str
    details: dict[str, Any] = field(default_factory=dict)
