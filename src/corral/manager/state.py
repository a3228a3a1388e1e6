"""What the leader keeps in memory: live tasks, links to nodes and workers.

All of it can be derived again from the store and the next heartbeats.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any

from corral.core.breaker import BreakerReport
from corral.core.clock_skew import ClockSkew
from corral.core.constraint import constraint_of
from corral.core.gpu import Gpu
from corral.core.gpu_binding import read_wish
from corral.core.job import ONLY_ON
from corral.core.job_type import JobType
from corral.core.node import Hold, Node, Sample, held_words
from corral.core.notice import NOTIFY, public
from corral.core.order import Order
from corral.core.share import PREEMPTIBLE, group_of
from corral.core.task import Overlap, Task, TaskSpec
from corral.core.worker import Worker, WorkerState
from corral.core.worker_type import WorkerType
from corral.errors import Conflict
from corral.manager.following import Bells
from corral.manager.shelf import WorkerShelf
from corral.manager.wait import Waiters
from corral.scheduler.scheduler import Scheduler
from corral.scheduler.value import (
    AttemptEnded,
    NodeMarked,
    OrderClosed,
    TasksRan,
    TasksTaken,
    TypeOrdered,
    TypePaused,
    TypesServed,
    Waiting,
)

Kind = tuple[str, str | None, int]
"""Job type, model and size of input: tasks that take about as long."""
KEEP_PAYLOAD_BYTES = 2048
STRIPPED_BYTES = 256 * 1024
_ANSWERS_KEPT = 16


@dataclass(slots=True)
class OpenOrder:
    """Attempts of one order not yet ended; `misses` counts beats without them."""

    id: str
    sent_at: float
    left: set[str]
    misses: int = 0


@dataclass(slots=True)
class WorkerLink:
    """A worker row and what is going on with it."""

    worker: Worker
    orders: dict[str, OpenOrder] = field(default_factory=dict)
    replies: list[asyncio.Future[dict[str, str] | None]] = field(default_factory=list)
    answers: OrderedDict[str, asyncio.Future[dict[str, Any]]] = field(
        default_factory=OrderedDict
    )
    drops: set[tuple[str, int]] = field(default_factory=set)
    execs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Commands it should run beside attempts and has not begun, by id."""
    memory_mb: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else it says of itself: which code it runs, how isolated."""
    breaker: str | None = None
    """The key of the breaker that keeps it from being started."""
    wanted_at: float | None = None
    """Since when (monotonic) it should register but has not."""
    registered_at: float | None = None
    """Since when (monotonic) it is loading, while it is."""
    start_s: float = 2.0
    """What its last start took, from registering until it was ready."""
    is_leaving: bool = False
    """Asked to stop or start anew: what it has not finished goes back uncharged."""
    is_parked: bool = False
    """Stopped because its node is drained; wanted again when that is over."""
    ran: int = 0
    failed: int = 0
    busy_s: float = 0.0
    loads: int = 0
    load_s: float = 0.0
    """How often it loaded a model, and what that took, since the manager started."""
    shelf: WorkerShelf = field(default_factory=WorkerShelf)
    deliver: Callable[[Order], None] | None = None
    """Takes its orders inside this process; without it they travel by the engine."""

    ran_at: tuple[date, int] = (date.min, 0)
    """Tasks it completed on the last day (UTC) it completed any."""

    @property
    def id(self) -> str:
        return self.worker.id

    def ran_on(self, day: date) -> int:
        return self.ran_at[1] if self.ran_at[0] == day else 0

    def remember_answer(self, report_id: str) -> asyncio.Future[dict[str, Any]]:
        future: asyncio.Future[dict[str, Any]] = (
            asyncio.get_running_loop().create_future()
        )
        self.answers[report_id] = future
        while len(self.answers) > _ANSWERS_KEPT:
            self.answers.popitem(last=False)
        return future

    def held(self) -> Iterator[tuple[OpenOrder, str]]:
        for order in list(self.orders.values()):
            for task_id in list(order.left):
                yield order, task_id


@dataclass(slots=True)
class NodeLink:
    """A node row and its heartbeat; `seen` is monotonic seconds."""

    node: Node
    seen: float
    sample: Sample | None = None
    gpus: Sequence[Gpu] | None = None
    """What it last said of its cards; None before it said anything."""
    breakers: Sequence[BreakerReport] | None = None
    """Those of its breakers that are not closed; None before it said anything."""
    gpu_releases: dict[str, datetime] = field(default_factory=dict)
    """Quarantines somebody lifted, by card: when each began. Kept until the node has
    done it."""
    is_sample_kept: bool = True
    is_stamped: bool = True
    desired_version: int = 1
    is_leaving: bool = False
    """Somebody asked for its agent to stop."""
    is_leave_told: bool = False
    """Its agent has been told so."""
    is_forgotten: bool = False
    """When it stops it is no node any more, and must forget that it was."""
    owner_hold: Hold | None = None
    """Its owner uses it, as its agent says."""
    holds: tuple[Hold, ...] = ()
    """Why it is given nothing new; empty while it is open. `Holding` keeps this."""
    is_silent: bool = False
    """Its beats are late, and it is given nothing new until they come again."""
    is_drained: bool = False
    """It was seen empty since it is being drained."""
    is_own: bool = False
    """The manager's own machine, which no agent speaks for."""
    clock: ClockSkew = field(default_factory=ClockSkew)
    is_clock_off: bool = False
    """It was told that its clock is off."""
    version_skew: str | None = None
    """Whether its version is older or newer than ours, once that was told."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    registering: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One registration at a time: an agent that got no answer comes again."""

    @property
    def is_draining(self) -> bool:
        return any(hold.drain for hold in self.holds)

    def check_open(self) -> None:
        """Raises Conflict while it is given nothing new."""
        if self.is_own:
            raise Conflict(
                f"node {self.node.id} is the manager's own machine, without an agent: "
                "'corral join' there makes it one that runs work",
                node_id=self.node.id,
            )
        if self.holds:
            raise Conflict(
                f"node {self.node.id} is held: {held_words(self.holds)}; "
                "'corral uncordon' opens it",
                node_id=self.node.id,
            )

    def touch_desired(self) -> None:
        self.desired_version += 1
        self.changed.set()
        self.changed = asyncio.Event()


@dataclass(slots=True)
class Cluster:
    """The leader's picture; mutated only on the event loop, between awaits."""

    scheduler: Scheduler
    waiters: Waiters = field(default_factory=Waiters)
    bells: Bells = field(default_factory=Bells)
    tasks: dict[str, Task] = field(default_factory=dict)
    nodes: dict[str, NodeLink] = field(default_factory=dict)
    workers: dict[str, WorkerLink] = field(default_factory=dict)
    """To be read; `add_worker` and `drop_worker` change it."""
    _by_node: dict[str, dict[str, WorkerLink]] = field(default_factory=dict)
    inside: dict[str, WorkerLink] = field(default_factory=dict)
    """Apps that take tasks as workers do, but are none: nobody lists or stops them."""
    job_types: dict[str, JobType] = field(default_factory=dict)
    worker_types: dict[str, WorkerType] = field(default_factory=dict)
    progress: dict[str, tuple[float, str]] = field(default_factory=dict)
    kept: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Attempts that may still run on a node that is lost: until when (monotonic)
    nobody else may be given the task."""
    unstored: set[str] = field(default_factory=set)
    """The scheduler knows them, but their insert is under way: not yet to place."""
    sequence: int = 0
    term: int = 0
    is_dirty: bool = False
    """A write's outcome is unknown: memory must be compared with the store."""

    on_noted_end: Callable[[str], None] = lambda task_id: None
    """Rung when a task has ended that somebody is to be told of."""

    def next_sequence(self) -> int:
        self.sequence += 1
        return self.sequence

    def is_live(self, task_id: str) -> bool:
        return task_id in self.tasks

    def link_of(self, task: Task) -> WorkerLink | None:
        return self.link(task.worker_id) if task.worker_id else None

    def link(self, worker_id: str) -> WorkerLink | None:
        return self.workers.get(worker_id) or self.inside.get(worker_id)

    def add_worker(self, worker: Worker) -> WorkerLink:
        """The link of this worker, new or known, with this row."""
        link = self.workers.get(worker.id)
        if link is None:
            link = self.workers[worker.id] = WorkerLink(worker)
            self._by_node.setdefault(worker.node_id, {})[worker.id] = link
        link.worker = worker
        return link

    def drop_worker(self, worker_id: str) -> None:
        link = self.workers.pop(worker_id, None)
        if link is not None:
            del self._by_node[link.worker.node_id][worker_id]

    def move_worker(self, link: WorkerLink, node_id: str) -> None:
        """It is another node's from now on."""
        del self._by_node[link.worker.node_id][link.id]
        link.worker = replace(link.worker, node_id=node_id)
        self._by_node.setdefault(node_id, {})[link.id] = link

    def of_node(self, node_id: str) -> list[WorkerLink]:
        """The workers of one node; each beat asks, so it must not look at all."""
        return list(self._by_node.get(node_id, {}).values())

    def set_job_type(self, job_type: JobType) -> None:
        """Tasks of this type are accepted, and go where and as it says."""
        self._pause(job_type.name, job_type.is_paused)
        self.job_types[job_type.name] = job_type
        self.scheduler.apply(TypeOrdered(job_type.name, job_type.queue_order))
        self._serve_inside()

    def _pause(self, name: str, is_paused: bool) -> None:
        known = self.job_types.get(name)
        if is_paused != (known is not None and known.is_paused):
            self.scheduler.apply(TypePaused(name, is_paused))

    def drop_job_type(self, name: str) -> None:
        self._pause(name, is_paused=False)
        self.job_types.pop(name, None)
        self._serve_inside()

    def types_for(self, app: str) -> frozenset[str]:
        """The job types that target an app."""
        return frozenset(j.name for j in self.job_types.values() if j.app == app)

    def _serve_inside(self) -> None:
        for link in self.inside.values():
            types = self.types_for(link.worker.spec.name)
            self.scheduler.apply(TypesServed(link.id, types))

    def mark(self, node: Node) -> None:
        """Tasks go to this node, or stay away, as its labels and taints say."""
        event = NodeMarked(node.id, node.all_labels, node.all_taints)
        self.scheduler.apply(event)

    def assign(self, task: Task, link: WorkerLink, now: Any) -> Task:
        """Note that `task` is with this worker incarnation now."""
        worker = link.worker
        task = task.given_to(worker.id, worker.incarnation, worker.node_id, now)
        self.tasks[task.id] = task
        return task

    def open_order(self, link: WorkerLink, order: OpenOrder) -> None:
        link.orders[order.id] = order

    def close_attempt(self, task: Task, worked_s: float = 0.0) -> None:
        """This attempt is no longer with its worker; free the slot when it was last."""
        if self.scheduler.counts(task.id):
            self.scheduler.apply(AttemptEnded(task.id, worked_s))
        link = self.link_of(task)
        if link is None:
            return
        for order_id, order in list(link.orders.items()):
            if task.id in order.left:
                order.left.discard(task.id)
                if not order.left:
                    del link.orders[order_id]
                    self.scheduler.apply(OrderClosed(link.id))
                return

    def end(self, task_id: str) -> None:
        """The task is terminal: forget it and wake who waits."""
        task = self.tasks.pop(task_id, None)
        if task is not None and NOTIFY in task.spec.labels:
            self.on_noted_end(task_id)
        self.progress.pop(task_id, None)
        self.waiters.ended(task_id)
        self.bells.ring(task_id)

    def learn(self, worker_id: str, ran: Mapping[Kind, tuple[int, float]]) -> None:
        for (job_type, model, units), (count, seconds) in ran.items():
            self.scheduler.apply(
                TasksRan(job_type, worker_id, count, seconds, model, units)
            )

    def waiting(self, task: Task, needs: frozenset[str] = frozenset()) -> Waiting:
        spec = task.spec
        group, group_limit = group_of(spec.labels)
        return Waiting(
            task_id=spec.id,
            attempt=task.attempt,
            job_type=spec.job_type,
            seq=task.seq,
            priority=spec.priority,
            run_after=spec.run_after.timestamp() if spec.run_after else 0.0,
            deadline=spec.deadline.timestamp() if spec.deadline else None,
            needs=needs,
            size=len(spec.payload) or STRIPPED_BYTES,
            worker_id=spec.labels.get(ONLY_ON),
            constraint=constraint_of(spec.labels),
            model=spec.model,
            arrived=task.created_at.timestamp() if task.created_at else 0.0,
            units=units_of(spec),
            owner=spec.owner,
            labels=public(spec.labels) or None,
            group=group,
            group_limit=group_limit,
            preemptible=PREEMPTIBLE in spec.labels
            and spec.overlap is not Overlap.NEVER,
        )

    def taken(self, task: Task) -> None:
        """Let shares count a task that came to its worker without a plan."""
        link = self.link_of(task)
        gpus = read_wish(link.worker.spec.gpus).count if link else 0
        event = TasksTaken(task.worker_id or "", (self.waiting(task),), float(gpus))
        self.scheduler.apply(event)

    def is_serving(self, worker: Worker) -> bool:
        return worker.incarnation is not None and worker.state in (
            WorkerState.READY,
            WorkerState.BUSY,
        )


def units_of(spec: TaskSpec) -> int:
    """How large a task's input is, in steps of two; what was stripped is large."""
    return (len(spec.payload) or STRIPPED_BYTES).bit_length()


def slim(task: Task) -> Task:
    """The task without a payload that is too large to keep in memory."""
    if len(task.spec.payload) <= KEEP_PAYLOAD_BYTES:
        return task
    return replace(task, spec=replace(task.spec, payload=""))
