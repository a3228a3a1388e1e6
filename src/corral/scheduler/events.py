"""What goes into the scheduler and what comes out. Times are seconds since epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from corral.core.access.share import Share
from corral.core.insight.learned import Learned
from corral.core.nodes.labels import Constraint
from corral.core.tasks.job_type import QueueOrder
from corral.core.tasks.needs import WHOLE as WHOLE
from corral.core.tasks.needs import Need
from corral.core.tasks.options import Gang

PRIVATE = "@"
"""Begins the name of one worker's own line, and of no job type."""
BOUND = "&"
"""Begins the name of the line of tasks that a strategy has given to one worker."""
WITH = "\x1f"
"""Stands between the parts of the name of a line."""


@dataclass(frozen=True, slots=True)
class CardOffer:
    """A GPU as its node tells of it.

    `holder` is the worker that has it for itself; tasks of others do not get it.
    """

    card_id: str
    kind: str = ""
    vendor: str = ""
    memory_mb: int = 0
    foreign_mb: int = 0
    holder: str = ""
    is_offered: bool = True


@dataclass(frozen=True, slots=True)
class NodeOffers:
    """All that a node has for tasks with needs, as far as it may be given out."""

    node_id: str
    cpu_milli: int
    memory_mb: int
    cards: tuple[CardOffer, ...] = ()


def private_queue(worker_id: str) -> str:
    """The queue of tasks that only this worker may run."""
    return PRIVATE + worker_id


@dataclass(frozen=True, slots=True)
class WaitingTask:
    """A queued attempt as the scheduler sees it.

    With a `worker_id` it waits for that worker alone, whatever types that one serves;
    with a `constraint` for a worker on a node that meets it. `arrived` is when it was
    submitted; `units` is how much work it says it is, in whatever its type counts
    (images, steps), 0 where it does not say. `owner` and `labels` say whose share it
    counts against; of a `group` at most `group_limit` are with workers at once. A
    `preemptible` one may be stopped for a critical one, and begins again. What it
    takes of its node is its `need`; members of a `gang` start together.
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
    model: str | None = None
    arrived: float = 0.0
    units: int = 0
    owner: str = ""
    labels: Mapping[str, str] | None = None
    group: str | None = None
    group_limit: int = 0
    preemptible: bool = False
    need: Need | None = None
    gang: Gang | None = None

    @property
    def queue(self) -> str:
        """Where it stands in line: with those that need the same."""
        if self.worker_id:
            return private_queue(self.worker_id)
        is_special = self.need is not None or self.gang is not None
        if self.model is None and self.constraint is None and not is_special:
            return self.job_type
        where = self.constraint.text if self.constraint is not None else ""
        key = WITH.join((self.job_type, self.model or "", where))
        if not is_special:
            return key
        gang = f"{self.owner} {self.gang.name}" if self.gang is not None else ""
        return WITH.join((key, self.need.text if self.need else "", gang))


@dataclass(frozen=True, slots=True)
class TasksQueued:
    tasks: tuple[WaitingTask, ...]


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

    tasks: tuple[WaitingTask, ...]
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
    tasks: tuple[WaitingTask, ...]
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
