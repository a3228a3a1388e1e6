"""What the scheduler knows of the cluster; `apply` is how it learns it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from heapq import heappop, heappush

from corral.core.tasks.job_type import MODEL_TASK, QueueOrder
from corral.scheduler.events import (
    BOUND,
    AttemptEnded,
    CardsBack,
    DependencyMet,
    MemoryChanged,
    ModelKnown,
    ModelsHeld,
    ModelsPinned,
    NodeHeld,
    NodeMarked,
    NodeOffers,
    NodeWithdrawn,
    OrderClosed,
    OutOfMemory,
    Paused,
    Recalled,
    SchedulerEvent,
    ShareGone,
    ShareSet,
    ShareUsed,
    TasksGone,
    TasksQueued,
    TasksRan,
    TasksTaken,
    TypeBatched,
    TypeOrdered,
    TypePaused,
    TypesServed,
    WaitingTask,
    WorkerAway,
    WorkerBroken,
    WorkerGone,
    WorkerReady,
)
from corral.scheduler.learn.demand_pattern import Habits
from corral.scheduler.learn.estimate import Estimates
from corral.scheduler.place.leases import Leases, lingering
from corral.scheduler.world.decision import carried
from corral.scheduler.world.fleet import Fleet, FleetModel, FleetWorker, WorkerGroup
from corral.scheduler.world.late_tasks import PassedTasks
from corral.scheduler.world.line import TaskLine
from corral.scheduler.world.line_changes import pause, raise_need, raised, share_out
from corral.scheduler.world.quota_gate import Gate
from corral.scheduler.world.share import ShareHolder

# Tasks that may not start yet: they need others, or it is too early; and deadlines.


class Delays:
    """Hands on to `enqueue` what may start."""

    def __init__(self, enqueue: Callable[[WaitingTask], None]) -> None:
        self._enqueue = enqueue
        self._now = 0.0
        self._blocked: dict[str, WaitingTask] = {}
        self._dependents: dict[str, set[str]] = {}
        self._later: dict[str, WaitingTask] = {}
        self._due: list[tuple[float, str, int]] = []
        self._deadlines: list[tuple[float, str, int]] = []

    def __len__(self) -> int:
        return len(self._blocked) + len(self._later)

    def admit(self, task: WaitingTask) -> None:
        if task.deadline is not None:
            heappush(self._deadlines, (task.deadline, task.task_id, task.attempt))
        if task.needs:
            self._blocked[task.task_id] = task
            for need in task.needs:
                self._dependents.setdefault(need, set()).add(task.task_id)
        elif task.run_after > 0.0:
            self._later[task.task_id] = task
            heappush(self._due, (task.run_after, task.task_id, task.attempt))
        else:
            self._enqueue(task)

    def unblock(self, task_id: str) -> None:
        """One that others needed has completed."""
        for waiting_id in sorted(self._dependents.pop(task_id, ())):
            task = self._blocked.pop(waiting_id, None)
            if task is not None:
                # It waits in line from now on; before, it waited for others.
                arrived = max(task.arrived, self._now)
                left = task.needs - {task_id}
                self.admit(replace(task, needs=left, arrived=arrived))

    def forget(self, task_id: str) -> None:
        task = self._blocked.pop(task_id, None) or self._later.pop(task_id, None)
        for need in task.needs if task else ():
            self._dependents.get(need, set()).discard(task_id)

    def release(self, now: float) -> None:
        """Hand on what has come due."""
        self._now = now
        while self._due and self._due[0][0] <= now:
            _, task_id, attempt = heappop(self._due)
            task = self._later.get(task_id)
            if task is not None and task.attempt == attempt:
                del self._later[task_id]
                if attempt <= 1 and task.arrived < task.run_after:
                    task = replace(task, arrived=task.run_after)
                self._enqueue(task)

    def past(self, now: float) -> Iterable[tuple[str, int]]:
        """Tasks and attempts whose deadline has passed; many may wait no more."""
        while self._deadlines and self._deadlines[0][0] <= now:
            _, task_id, attempt = heappop(self._deadlines)
            yield task_id, attempt

    def next_at(self) -> float | None:
        """When time alone will change something."""
        times = [heap[0][0] for heap in (self._due, self._deadlines) if heap]
        return min(times, default=None)

    def get(self, task_id: str) -> WaitingTask | None:
        return self._blocked.get(task_id) or self._later.get(task_id)

    def tasks(self) -> list[WaitingTask]:
        return [*self._blocked.values(), *self._later.values()]

    def dependents(self, task_id: str) -> tuple[str, ...]:
        """Tasks that still wait for this one."""
        return tuple(sorted(self._dependents.get(task_id, ())))


class Picture:
    """Workers, waiting tasks by line, and what changed since the last plan."""

    def __init__(self, *, follows_habits: bool = False) -> None:
        self.lines: dict[str, TaskLine] = {}
        self.line_by_task: dict[str, TaskLine] = {}
        """The line of each task that could start."""
        self.fleet = Fleet()
        self.estimates = Estimates()
        self.habits = Habits(self.estimates)
        self._follows_habits = follows_habits
        """Is anybody interested in when tasks come?"""
        self.delays = Delays(self._enqueue)
        self.gate = Gate(self._on_open)
        self.passed_tasks = PassedTasks()
        self.leases = Leases()
        self.needy: dict[str, TaskLine] = {}
        """Lines of tasks with needs, and of gangs."""
        self.memory_floors: dict[tuple[str, str | None], int] = {}
        """Memory of a card that was too little for tasks of this type and model."""
        self.batches: dict[str, int] = {}
        """How many tasks of a type may go in one order, where that was said."""
        self.is_paused = False
        # The rest has no better choice than at the last plan.
        self.freed: dict[str, None] = {}
        self.grown: dict[str, None] = {}
        self._orders: dict[str, QueueOrder] = {}

    def apply(self, event: SchedulerEvent) -> None:
        """Take note of what happened."""
        match event:
            case TasksQueued(tasks):
                for task in tasks:
                    self.end(task.task_id)
                    self.delays.admit(task)
            case OrderClosed(worker_id):
                self._close(worker_id)
            case TasksRan():
                self._learn(event)
            case AttemptEnded(task_id, seconds, attempt, lingers):
                if lingers:
                    self.leases.linger(task_id, attempt)
                self.end(task_id, seconds)
            case TasksGone(task_ids):
                for task_id in task_ids:
                    self.forget(task_id)
            case DependencyMet(task_id):
                self.delays.unblock(task_id)
            case Recalled(rows):
                self.estimates.recall(rows)
            case WorkerReady() | WorkerBroken() | WorkerGone() | WorkerAway():
                self._apply_worker(event)
            case TypesServed(worker_id, job_types):
                if (worker := self.fleet.workers.get(worker_id)) is not None:
                    worker.types = job_types
                    self._add(worker)
            case NodeHeld():
                for worker in self.fleet.hold(event):
                    self._add(worker)
            case NodeMarked():
                for worker in self.fleet.mark(event):
                    self._add(worker)
            case Paused(is_paused):
                self.is_paused = is_paused
                self._look_at_all()
            case TypeOrdered(job_type, order):
                self._reorder(job_type, order)
            case TypeBatched(job_type, None):
                self.batches.pop(job_type, None)
            case TypeBatched(job_type, int(limit)):
                self.batches[job_type] = limit
            case ModelKnown():
                self._know_model(event)
            case ModelsHeld() | ModelsPinned() | MemoryChanged():
                self._apply_models(event)
            case CardsBack(task_id, attempt):
                self.end(lingering(task_id, attempt))
            case NodeOffers() | NodeWithdrawn():
                self._apply_offer(event)
            case OutOfMemory():
                raise_need(self, event)
            case TypePaused(job_type, is_paused):
                pause(self, job_type, is_paused)
            case ShareSet() | ShareGone() | ShareUsed() | TasksTaken():
                share_out(self, event)

    def _apply_worker(
        self, event: WorkerReady | WorkerBroken | WorkerGone | WorkerAway
    ) -> None:
        self._remove(event.worker_id)
        match event:
            case WorkerReady():
                given = carried(event, self.estimates)
                ends = (o.at + len(o.tasks) * o.cost.run_s for o in given)
                self._add(
                    FleetWorker(
                        event.worker_id,
                        event.node_id,
                        event.job_types,
                        event.slots,
                        event.open_orders,
                        event.speed * self.estimates.speeds.factor(event.worker_id),
                        event.memory_mb,
                        {model: FleetModel() for model in sorted(event.models)},
                        others_mb=event.others_mb,
                        told=event.models if event.is_telling else None,
                        gpus=event.gpus,
                        given=given,
                        free_at=max(ends, default=0.0),
                    )
                )
            case WorkerBroken(worker_id):
                self.fleet.broken[worker_id] = event
            case WorkerAway(worker_id):
                self.fleet.away[worker_id] = event

    def _add(self, worker: FleetWorker) -> None:
        self._remove(worker.worker_id)
        is_new = len(self.fleet.groups)
        group = self.fleet.add(worker)
        for line in self.lines.values():
            is_own = line.only == worker.worker_id
            if is_own or len(self.fleet.groups) > is_new:
                self._match(line, group)
        self.freed[worker.worker_id] = None

    def _remove(self, worker_id: str) -> None:
        worker = self.fleet.remove(worker_id)
        self.freed.pop(worker_id, None)
        if worker is None:
            return
        for line in self.lines.values():
            if line.only == worker_id:
                self._unmatch(line)
        if (bound := self.lines.get(BOUND + worker_id)) is not None:
            for task in bound.queue.tasks():
                self.forget(task.task_id)
                self.push(self.line_of(task), task)
        if not worker.group.workers:
            self.fleet.drop(worker.group)
            for line in self.lines.values():
                if worker.group in line.groups:
                    line.groups.remove(worker.group)

    def _match(self, line: TaskLine, group: WorkerGroup) -> None:
        size_mb = self.estimates.size_mb(line.model) if line.model else 0.0
        if group.serves(line, size_mb) and group not in line.groups:
            line.groups.append(group)
            if line and not line.is_aside:
                group.waiting[line.key] = line

    def _close(self, worker_id: str) -> None:
        worker = self.fleet.workers.get(worker_id)
        if worker is not None:
            self.fleet.set_open(worker, max(0, worker.open_orders - 1))
            if not worker.open_orders:
                self.fleet.rest(worker)
            self.freed[worker_id] = None

    def _learn(self, ran: TasksRan) -> None:
        worker = self.fleet.workers.get(ran.worker_id)
        speed = worker.speed if worker else 1.0
        kind = (ran.model, ran.units)
        by = ran.worker_id if worker else ""
        moved = self.estimates.learn(
            ran.job_type, ran.count, ran.seconds, *kind, speed, by
        )
        if ran.working_mb is not None:
            self.estimates.learn_working(ran.job_type, ran.working_mb, *kind)
        if worker is not None and moved != 1.0:
            worker.speed *= moved
            self._add(worker)
        if ran.model is not None:
            self.fleet.touch(ran.model)

    def _know_model(self, told: ModelKnown) -> None:
        model = told.model
        self.estimates.know_model(model, told.size_mb, told.load_s, told.worker_id)
        self.fleet.touch(model)
        for line in self.lines.values():
            if line.model == model:
                self._unmatch(line)
                for group in self.fleet.groups.values():
                    self._match(line, group)
                self.grown[line.key] = None

    def _unmatch(self, line: TaskLine) -> None:
        for group in line.groups:
            group.waiting.pop(line.key, None)
        line.groups = []
        line.left = None

    def _apply_models(self, event: ModelsHeld | ModelsPinned | MemoryChanged) -> None:
        if isinstance(event, ModelsPinned):
            # Kept apart from the worker, which may be away.
            self.fleet.pin(event.worker_id, event.models)
        worker = self.fleet.workers.get(event.worker_id)
        if worker is None:
            return
        if isinstance(event, ModelsHeld):
            self.fleet.believe(worker, event.models)
        elif isinstance(event, MemoryChanged):
            worker.others_mb = event.others_mb
            if event.memory_mb != worker.memory_mb:
                worker.memory_mb = event.memory_mb
                self._add(worker)
        self.freed[event.worker_id] = None

    def _look_at_all(self) -> None:
        self.freed.update(dict.fromkeys(self.fleet.workers))

    def _reorder(self, job_type: str, order: QueueOrder) -> None:
        self._orders[job_type] = order
        for line in self.lines.values():
            is_of_type = line.job_type == job_type and line.only is None
            if is_of_type and line.queue.order is not order:
                line.reorder(order)

    # shares and pauses -------------------------------------------------------
    def _on_open(self, line: TaskLine) -> None:
        self.grown[line.key] = None

    # needs -------------------------------------------------------------------
    def _apply_offer(self, event: NodeOffers | NodeWithdrawn) -> None:
        if isinstance(event, NodeWithdrawn):
            self.leases.withdraw(event.node_id)
        elif self.leases.offer(event):
            self.look_at(event.node_id)

    def look_at(self, node_id: str) -> None:
        """Its workers may have more to choose from now."""
        if self.needy:
            for worker in self.fleet.of_node(node_id):
                self.freed[worker.worker_id] = None

    def end(self, task_id: str, seconds: float = 0.0) -> None:
        """A task is no longer with its worker."""
        self.gate.end(task_id, seconds)
        if self.leases.counts(task_id) and (lease := self.leases.end(task_id)):
            self.look_at(lease.node_id)

    # what changed ------------------------------------------------------------
    def take_freed(self) -> dict[str, None]:
        """Workers that may have a better choice than at the last plan."""
        freed, self.freed = self.freed, {}
        return freed

    def take_grown(self) -> dict[str, None]:
        """Lines that may have one."""
        grown, self.grown = self.grown, {}
        return grown

    # tasks -------------------------------------------------------------------
    def _enqueue(self, task: WaitingTask) -> None:
        if self.memory_floors:
            task = raised(self.memory_floors, task)
        if task.need is not None and task.attempt <= 1:
            self.leases.packing.expect(task.need)
        self.push(self.line_of(task), task)
        # What loads and drops models for others is no demand for them.
        if task.model and task.attempt <= 1 and task.job_type != MODEL_TASK:
            self.estimates.arrived(task.model, task.arrived)
            (self.habits.note if self._follows_habits else self.habits.see)(task)

    def bind(self, task: WaitingTask, worker: FleetWorker) -> None:
        """Move a task to a worker's own line."""
        buckets = self.line_by_task[task.task_id].buckets
        if buckets:
            run_s = self.estimates.run_s(task.job_type, task.model, task.units)
            self.gate.begin((task,), buckets, run_s / worker.speed, worker.gpus)
        self.unqueue(task.task_id)
        key = BOUND + worker.worker_id
        line = self.lines.get(key)
        if line is None:
            order = QueueOrder.PRIORITY
            line = TaskLine(
                key, task.job_type, None, only=worker.worker_id, order=order
            )
            self.lines[key] = line
            self._match(line, worker.group)
        self.push(line, task)

    def push(self, line: TaskLine, task: WaitingTask) -> None:
        is_first = not line
        line.push(task)
        if task.need is not None or task.gang is not None:
            self.needy[line.key] = line
        if is_first:
            self.gate.enter(line)
        self.line_by_task[task.task_id] = line
        self.grown[line.key] = None

    def line_of(self, task: WaitingTask) -> TaskLine:
        key = self.gate.line_key(task)
        line = self.lines.get(key)
        if line is None:
            buckets = self.gate.buckets_of(task)
            line = self.lines[key] = self.detached(task, buckets)
        return line

    def detached(
        self, task: WaitingTask, buckets: tuple[ShareHolder, ...] = ()
    ) -> TaskLine:
        """A line like this task's, with who would serve it; it is not served."""
        order = QueueOrder.PRIORITY
        if task.worker_id is None:
            order = self._orders.get(task.job_type, order)
        line = TaskLine(
            self.gate.line_key(task),
            task.job_type,
            task.model,
            only=task.worker_id,
            order=order,
            constraint=task.constraint,
            buckets=buckets,
            need=None if task.worker_id else task.need,
            gang_size=task.gang.size if task.gang and not task.worker_id else 0,
        )
        size_mb = self.estimates.size_mb(task.model) if task.model else 0.0
        groups = self.fleet.groups.values()
        line.groups = [group for group in groups if group.serves(line, size_mb)]
        return line

    def forget(self, task_id: str) -> None:
        self.end(task_id)
        self.delays.forget(task_id)
        self.unqueue(task_id)

    def unqueue(self, task_id: str) -> None:
        line = self.line_by_task.pop(task_id, None)
        if line is not None:
            task = line.discard(task_id)
            if task is not None:
                self.passed_tasks.gone(task.job_type, task_id)
            self.close_if_empty(line)

    def go(self, task: WaitingTask) -> None:
        """A task has left its line for a worker."""
        del self.line_by_task[task.task_id]
        self.passed_tasks.gone(task.job_type, task.task_id)

    def close_if_empty(self, line: TaskLine) -> None:
        if line:
            return
        self.gate.leave(line)
        self.needy.pop(line.key, None)
        if line.key != line.job_type:
            # Models and constraints are what users write: what is done with goes.
            del self.lines[line.key]

    def find(self, task_id: str) -> WaitingTask | None:
        task = self.delays.get(task_id)
        if task is not None:
            return task
        line = self.line_by_task.get(task_id)
        return line.queue.get(task_id) if line is not None else None
