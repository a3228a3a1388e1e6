"""What the leader keeps in memory: live tasks, nodes and workers.

All of it can be derived again from the store and the next heartbeats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from corral.core.models.catalogue import CatalogueModel
from corral.core.nodes.gpu_choice import read_wish
from corral.core.nodes.node import NodeRecord
from corral.core.nodes.worker import WorkerRecord, WorkerState
from corral.core.nodes.worker_type import WorkerType
from corral.core.tasks.app import App
from corral.core.tasks.job_type import JobType
from corral.core.tasks.task import Overlap, Task, TaskSpec
from corral.errors import NodeNotFound, WorkerNotFound
from corral.manager.cluster.links import NodeLink as NodeLink
from corral.manager.cluster.links import OpenOrder as OpenOrder
from corral.manager.cluster.links import WorkerLink as WorkerLink
from corral.manager.cluster.streams import OutputStreams
from corral.manager.cluster.waiters import TaskFollowers, Waiters
from corral.scheduler.events import (
    AttemptEnded,
    NodeMarked,
    OrderClosed,
    TasksRan,
    TasksTaken,
    TypeBatched,
    TypeOrdered,
    TypePaused,
    TypesServed,
    WaitingTask,
)
from corral.scheduler.scheduler import Scheduler

Kind = tuple[str, str | None, int]
"""Job type, model and size of input: tasks that take about as long."""
KEEP_PAYLOAD_BYTES = 2048
STRIPPED_BYTES = 256 * 1024


@dataclass(slots=True)
class Cluster:
    """The leader's picture; mutated only on the event loop, between awaits."""

    scheduler: Scheduler
    waiters: Waiters = field(default_factory=Waiters)
    followers: TaskFollowers = field(default_factory=TaskFollowers)
    streams: OutputStreams = field(default_factory=OutputStreams)
    tasks: dict[str, Task] = field(default_factory=dict)
    nodes: dict[str, NodeLink] = field(default_factory=dict)
    workers: dict[str, WorkerLink] = field(default_factory=dict)
    """To be read; `add_worker` and `drop_worker` change it."""
    _by_node: dict[str, dict[str, WorkerLink]] = field(default_factory=dict)
    inside: dict[str, WorkerLink] = field(default_factory=dict)
    """Apps that take tasks as workers do, but are none: nobody lists or stops them."""
    apps: dict[str, App] = field(default_factory=dict)
    job_types: dict[str, JobType] = field(default_factory=dict)
    worker_types: dict[str, WorkerType] = field(default_factory=dict)
    catalogue: dict[str, CatalogueModel] = field(default_factory=dict)
    """Models by name, whether they can be used yet or not."""
    sizes: dict[str, int] = field(default_factory=dict)
    """How long payloads are that are not kept here."""
    progress: dict[str, tuple[float, str]] = field(default_factory=dict)
    kept: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Attempts that may still run on a node that is lost: until when (monotonic)
    nobody else may be given the task."""
    stopping: set[str] = field(default_factory=set)
    """Tasks that are being taken from workers that have not been told yet."""
    unstored: set[str] = field(default_factory=set)
    """The scheduler knows them, but their insert is under way: not yet to place."""
    sequence: int = 0
    term: int = 0
    is_dirty: bool = False
    """A write's outcome is unknown: memory must be compared with the store."""
    is_engine_up: bool = True
    """Does Redis answer? While it does not, nothing is sent."""
    is_mass_loss: bool = False
    """So many nodes fell silent together that none of them is given up."""
    audit_fault: str = ""
    """How the chain of the audit log is broken."""

    def lead(self, term: int) -> None:
        """From now on writes are ours; those of an earlier term are refused."""
        self.term = term

    def doubt(self, is_doubtful: bool = True) -> None:
        """A write may or may not be through: the rescue loop compares."""
        self.is_dirty |= is_doubtful

    def trust(self) -> None:
        """Memory is compared with the store from here on."""
        self.is_dirty = False

    def set_audit(self, fault: str) -> None:
        self.audit_fault = fault

    def set_engine(self, is_up: bool) -> None:
        self.is_engine_up = is_up

    def hold_losses(self, is_held: bool) -> None:
        self.is_mass_loss = is_held

    def next_sequence(self) -> int:
        self.sequence += 1
        return self.sequence

    def count_from(self, sequence: int) -> None:
        """So many were accepted before we began."""
        self.sequence = max(self.sequence, sequence)

    def is_live(self, task_id: str) -> bool:
        return task_id in self.tasks

    def link_of(self, task: Task) -> WorkerLink | None:
        return self.link(task.worker_id) if task.worker_id else None

    def link(self, worker_id: str) -> WorkerLink | None:
        return self.workers.get(worker_id) or self.inside.get(worker_id)

    def node(self, node_id: str) -> NodeLink:
        """Raises NodeNotFound."""
        link = self.nodes.get(node_id)
        if link is None:
            raise NodeNotFound(f"no node {node_id!r}", node_id=node_id)
        return link

    def worker(self, worker_id: str) -> WorkerLink:
        """Raises WorkerNotFound."""
        link = self.workers.get(worker_id)
        if link is None:
            raise WorkerNotFound(f"no worker {worker_id!r}", worker_id=worker_id)
        return link

    def add_worker(self, worker: WorkerRecord) -> WorkerLink:
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

    def edition(self, model: str) -> str:
        """What workers must have loaded of a model; empty where nobody says."""
        entry = self.catalogue.get(model)
        return entry.edition if entry is not None else ""

    def set_job_type(self, job_type: JobType) -> None:
        """Tasks of this type are accepted, and go where and as it says."""
        self._pause(job_type.name, job_type.is_paused)
        self._batch(job_type.name, job_type)
        self.job_types[job_type.name] = job_type
        self.scheduler.apply(TypeOrdered(job_type.name, job_type.queue_order))
        self._serve_inside()

    def _pause(self, name: str, is_paused: bool) -> None:
        known = self.job_types.get(name)
        if is_paused != (known is not None and known.is_paused):
            self.scheduler.apply(TypePaused(name, is_paused))

    def _batch(self, name: str, told: JobType | None) -> None:
        limit = told.gathered if told is not None else None
        known = self.job_types.get(name)
        if limit != (known.gathered if known is not None else None):
            self.scheduler.apply(TypeBatched(name, limit))

    def drop_job_type(self, name: str) -> None:
        self._pause(name, is_paused=False)
        self._batch(name, None)
        self.job_types.pop(name, None)
        self._serve_inside()

    def types_for(self, app: str) -> frozenset[str]:
        """The job types that target an app."""
        return frozenset(j.name for j in self.job_types.values() if j.app == app)

    def _serve_inside(self) -> None:
        for link in self.inside.values():
            types = self.types_for(link.worker.spec.name)
            self.scheduler.apply(TypesServed(link.id, types))

    def mark(self, node: NodeRecord) -> None:
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
        link = self.link_of(task)
        if self.scheduler.counts(task.id):
            lingers = link is not None and task.id in self.stopping
            ended = AttemptEnded(task.id, worked_s, task.attempt, lingers)
            self.scheduler.apply(ended)
            if link is not None and lingers:
                link.lingering.add((task.id, task.attempt))
        if link is None:
            return
        for order_id, order in list(link.orders.items()):
            if task.id in order.left:
                order.left.discard(task.id)
                if not order.left:
                    del link.orders[order_id]
                    self.scheduler.apply(OrderClosed(link.id))
                return

    def keep(self, task: Task) -> None:
        """Have the task in memory, without a payload that is too large for that."""
        size = len(task.spec.payload)
        if size > KEEP_PAYLOAD_BYTES:
            self.sizes[task.id] = size
            task = replace(task, spec=replace(task.spec, payload=""))
        self.tasks[task.id] = task

    def size_of(self, spec: TaskSpec) -> int:
        """How long a task's payload is; 0 where a former manager took it."""
        return len(spec.payload) or self.sizes.get(spec.id, 0)

    def units_of(self, spec: TaskSpec) -> int:
        """How large a task's input is, in steps of two; 0 where that is not known."""
        return self.size_of(spec).bit_length()

    def end(self, task_id: str) -> None:
        """The task is terminal: forget it and wake who waits."""
        self.sizes.pop(task_id, None)
        self.tasks.pop(task_id, None)
        self.progress.pop(task_id, None)
        self.streams.end(task_id)
        self.waiters.ended(task_id)
        self.followers.ring(task_id)

    def learn(
        self,
        worker_id: str,
        ran: Mapping[Kind, tuple[int, float]],
        peaks: Mapping[Kind, float] = MappingProxyType({}),
    ) -> None:
        """Tell the scheduler what tasks took: seconds, and MB of GPU memory at most."""
        for kind, (count, seconds) in ran.items():
            job_type, model, units = kind
            took = (count, seconds, model, units, peaks.get(kind))
            self.scheduler.apply(TasksRan(job_type, worker_id, *took))

    def waiting(self, task: Task, needs: frozenset[str] = frozenset()) -> WaitingTask:
        spec = task.spec
        options = spec.options
        return WaitingTask(
            task_id=spec.id,
            attempt=task.attempt,
            job_type=spec.job_type,
            seq=task.seq,
            priority=spec.priority,
            run_after=spec.run_after.timestamp() if spec.run_after else 0.0,
            deadline=spec.deadline.timestamp() if spec.deadline else None,
            needs=needs,
            size=self.size_of(spec) or STRIPPED_BYTES,
            worker_id=options.only_on,
            constraint=options.constraint,
            model=spec.model,
            arrived=task.created_at.timestamp() if task.created_at else 0.0,
            units=self.units_of(spec),
            owner=spec.owner,
            labels=spec.labels or None,
            group=options.group,
            group_limit=options.group_limit or 0,
            preemptible=options.preemptible and spec.overlap is not Overlap.NEVER,
            need=options.resources,
            gang=options.member,
        )

    def taken(self, task: Task) -> None:
        """Let what is counted count a task that came to its worker without a plan.

        Which GPUs it has is not kept here: its worker says so in its beats.
        """
        link, waiting = self.link_of(task), self.waiting(task)
        gpus = read_wish(link.worker.spec.gpus).count if link else 0
        has_cards = waiting.need is not None and waiting.need.gpus
        node_id = "" if has_cards else task.node_id or ""
        event = TasksTaken(task.worker_id or "", (waiting,), float(gpus), node_id)
        self.scheduler.apply(event)

    def is_serving(self, worker: WorkerRecord) -> bool:
        return worker.incarnation is not None and worker.state in (
            WorkerState.READY,
            WorkerState.BUSY,
        )
