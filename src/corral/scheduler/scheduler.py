"""The scheduler: `apply(event)` keeps its picture of the cluster, `plan(now)` decides.

Earliest completion: the best waiting task of all job types goes to the worker with the
fewest open orders. Tasks stay here until a worker can start them; only types so short
that a round trip would show get a second order ahead.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from corral.core.job_type import QueueOrder
from corral.scheduler.choice import choose
from corral.scheduler.estimate import Durations
from corral.scheduler.fleet import Fleet, FleetWorker
from corral.scheduler.queue import TypeQueue
from corral.scheduler.value import (
    PRIVATE,
    DependencyMet,
    NodeHeld,
    NodeMarked,
    OrderClosed,
    Paused,
    Plan,
    PlannedOrder,
    Reason,
    SchedulerEvent,
    TasksGone,
    TasksQueued,
    TasksRan,
    TypeOrdered,
    TypesServed,
    Waiting,
    WorkerAway,
    WorkerBroken,
    WorkerGone,
    WorkerReady,
    private_queue,
)
from corral.scheduler.why import why_no_worker

_EMPTY_KEPT = 64


@dataclass(frozen=True, slots=True)
class Policy:
    """How large an order may be, and when a worker gets one ahead."""

    order_max_tasks: int = 200
    order_max_bytes: int = 1 << 20
    order_budget_s: float = 0.020
    ahead_below_s: float = 0.010


class Scheduler:
    """Deterministic for the same events; the caller owns clock and I/O."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy or Policy()
        self._queues: dict[str, TypeQueue] = {}
        self._orders: dict[str, QueueOrder] = {}
        self._blocked: dict[str, Waiting] = {}
        self._dependents: dict[str, set[str]] = {}
        self._delayed: list[tuple[float, str, int]] = []
        self._later: dict[str, Waiting] = {}
        self._deadlines: list[tuple[float, str, int]] = []
        self._fleet = Fleet()
        self._durations = Durations()
        self._is_paused = False

    # events ------------------------------------------------------------------
    def apply(self, event: SchedulerEvent) -> None:
        """Take note of what happened."""
        match event:
            case TasksQueued(tasks):
                for task in tasks:
                    self._admit(task)
            case TasksGone(task_ids):
                for task_id in task_ids:
                    self._forget(task_id)
            case DependencyMet(task_id):
                self._unblock(task_id)
            case WorkerReady():
                self._fleet.ready(event)
            case WorkerBroken():
                self._fleet.fail(event)
            case WorkerAway():
                self._fleet.leave(event)
            case WorkerGone(worker_id):
                self._fleet.gone(worker_id)
                if not self._queues.get(private_queue(worker_id)):
                    self._queues.pop(private_queue(worker_id), None)
            case NodeHeld():
                self._fleet.hold(event)
            case NodeMarked():
                self._fleet.mark(event)
            case OrderClosed(worker_id):
                if worker := self._fleet.workers.get(worker_id):
                    worker.open_orders = max(0, worker.open_orders - 1)
            case TasksRan(job_type, _, count, seconds):
                self._durations.learn(job_type, count, seconds)
            case Paused(is_paused):
                self._is_paused = is_paused
            case TypeOrdered(job_type, order):
                self._reorder(job_type, order)
            case TypesServed(worker_id, job_types):
                self._fleet.serve(worker_id, job_types)

    def _reorder(self, job_type: str, order: QueueOrder) -> None:
        self._orders[job_type] = order
        for name in (job_type, *self._fleet.strict_queues(job_type)):
            queue = self._queues.get(name)
            if queue is not None and queue.order is not order:
                queue.reorder(order)

    def _admit(self, task: Waiting) -> None:
        if task.deadline is not None:
            heappush(self._deadlines, (task.deadline, task.task_id, task.attempt))
        if task.needs:
            self._blocked[task.task_id] = task
            for need in task.needs:
                self._dependents.setdefault(need, set()).add(task.task_id)
        elif task.run_after > 0.0:
            self._later[task.task_id] = task
            heappush(self._delayed, (task.run_after, task.task_id, task.attempt))
        else:
            self._queue_of(task).push(task)

    def _queue_of(self, task: Waiting) -> TypeQueue:
        if task.worker_id is None and task.constraint is None:
            # As `task.queue` says, but nearly every task comes along here.
            name = task.job_type
        else:
            name = task.queue
        queue = self._queues.get(name)
        if queue is None:
            if task.constraint is not None and task.worker_id is None:
                self._tidy()
                self._fleet.open_queue(name, task.job_type, task.constraint)
            order = self._orders.get(self._fleet.type_of(name), QueueOrder.PRIORITY)
            queue = self._queues[name] = TypeQueue(order)
        return queue

    def _tidy(self) -> None:
        """Constraints are what users write: queues of those done with must not stay."""
        strict = self._fleet.strict_queues()
        if len(strict) < _EMPTY_KEPT:
            return
        for name in strict:
            if not self._queues[name]:
                del self._queues[name]
                self._fleet.close_queue(name)

    def _unblock(self, task_id: str) -> None:
        for waiting_id in sorted(self._dependents.pop(task_id, ())):
            task = self._blocked.pop(waiting_id, None)
            if task is not None:
                self._admit(replace(task, needs=task.needs - {task_id}))

    def _forget(self, task_id: str) -> None:
        task = self._blocked.pop(task_id, None) or self._later.pop(task_id, None)
        for need in task.needs if task else ():
            self._dependents.get(need, set()).discard(task_id)
        if task is None:
            for queue in self._queues.values():
                if queue.discard(task_id):
                    return

    # decisions ---------------------------------------------------------------
    def plan(self, now: float, *, can_send: bool = True) -> Plan:
        """What to do at `now`; planned tasks are no longer waiting here.

        While orders cannot be sent, only time is followed.
        """
        expired = self._expire(now)
        self._release_due(now)
        orders: list[PlannedOrder] = []
        if can_send and not self._is_paused:
            while order := self._next_order():
                orders.append(order)
        return Plan(tuple(orders), expired, self._next_wake())

    def _expire(self, now: float) -> tuple[Waiting, ...]:
        gone: list[Waiting] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, task_id, attempt = heappop(self._deadlines)
            task = self._find(task_id)
            if task is not None and task.attempt == attempt:
                self._forget(task_id)
                gone.append(task)
        return tuple(gone)

    def _release_due(self, now: float) -> None:
        while self._delayed and self._delayed[0][0] <= now:
            _, task_id, attempt = heappop(self._delayed)
            task = self._later.get(task_id)
            if task is not None and task.attempt == attempt:
                del self._later[task_id]
                self._queue_of(task).push(task)

    def _next_wake(self) -> float | None:
        times = [heap[0][0] for heap in (self._delayed, self._deadlines) if heap]
        return min(times, default=None)

    def _next_order(self) -> PlannedOrder | None:
        best: tuple[tuple[int, int], str, FleetWorker] | None = None
        for name, queue in self._queues.items():
            key = queue.standing()
            if key is None or (best is not None and best[0] <= key):
                continue
            worker = self._choose(name)
            if worker is not None:
                best = (key, name, worker)
        if best is None:
            return None
        _, name, worker = best
        worker.open_orders += 1
        queue = self._queues[name]
        tasks = queue.take(self._order_size(name), self._policy.order_max_bytes)
        return PlannedOrder(worker.worker_id, tasks)

    def _choose(self, queue: str) -> FleetWorker | None:
        ahead = 2 if self._is_short(queue) else 1
        return choose(queue, self._fleet.workers.values(), ahead)

    def _is_short(self, queue: str) -> bool:
        mean = self._durations.get(self._fleet.type_of(queue))
        return mean is not None and mean < self._policy.ahead_below_s

    def _order_size(self, queue: str) -> int:
        mean = self._durations.get(self._fleet.type_of(queue))
        if mean is None:
            return 1
        most = int(self._policy.order_budget_s / max(mean, 1e-6))
        slots = self._fleet.slots(queue)
        share = -(-len(self._queues[queue]) // max(1, slots))
        return max(1, min(most, share, self._policy.order_max_tasks))

    # answers -----------------------------------------------------------------
    def _find(self, task_id: str) -> Waiting | None:
        task = self._blocked.get(task_id) or self._later.get(task_id)
        if task is not None:
            return task
        for queue in self._queues.values():
            if (queued := queue.get(task_id)) is not None:
                return queued
        return None

    def knows(self, task_id: str) -> bool:
        """Does this task wait here?"""
        return self._find(task_id) is not None

    def dependents(self, task_id: str) -> tuple[str, ...]:
        """Tasks that still wait for this one."""
        return tuple(sorted(self._dependents.get(task_id, ())))

    def waiting_count(self) -> int:
        queued = sum(len(q) for q in self._queues.values())
        return queued + len(self._blocked) + len(self._later)

    def waiting_by_type(self) -> Counter[str]:
        """How many tasks of each type wait, for whatever reason."""
        counts = Counter(task.job_type for task in self._apart())
        for name, queue in self._queues.items():
            job_type = self._fleet.type_of(name)
            if not job_type.startswith(PRIVATE):
                counts[job_type] += len(queue)
        return counts

    def waiting_ids(self, job_type: str) -> list[str]:
        """Every task of this type that waits, for whatever reason."""
        names = (job_type, *self._fleet.strict_queues(job_type))
        queues = [q for name in names if (q := self._queues.get(name)) is not None]
        tasks = [*(task for q in queues for task in q.tasks()), *self._apart()]
        return [task.task_id for task in tasks if task.job_type == job_type]

    def _apart(self) -> list[Waiting]:
        """Those that wait elsewhere than in a queue of their type."""
        type_of = self._fleet.type_of
        queues = self._queues.items()
        private = (q for name, q in queues if type_of(name).startswith(PRIVATE))
        held = (*self._blocked.values(), *self._later.values())
        return [*held, *(task for queue in private for task in queue.tasks())]

    def estimated_wait_s(self, job_type: str) -> float | None:
        """Seconds until a task of this type submitted now would start, if known."""
        slots = self._fleet.slots(job_type)
        mean = self._durations.get(job_type)
        if not slots:
            return None
        if self._choose(job_type) is not None:
            return 0.0
        waiting = len(self._queues[job_type]) if job_type in self._queues else 0
        return None if mean is None else mean * (waiting + 1) / slots

    def why(self, task_id: str, now: float) -> Reason | None:
        """Why this task waits; None when it does not wait here."""
        task = self._find(task_id)
        if task is None:
            return None
        if task.needs:
            return Reason(
                "dependencies",
                f"waits for {len(task.needs)} other task(s) to complete",
                {"depends_on": sorted(task.needs)},
            )
        if task.run_after > now:
            wait_s = round(task.run_after - now, 1)
            return Reason(
                "not_before",
                f"may start in {wait_s} s (run_after or retry backoff)",
                {"starts_in_s": wait_s},
            )
        if self._is_paused:
            return Reason("draining", "the cluster is draining: nothing new starts")
        return why_no_worker(task, self._fleet, self._queue_of(task).position(task))

    def open_orders(self, worker_id: str) -> int:
        """Orders a worker has or is about to get."""
        worker = self._fleet.workers.get(worker_id)
        return worker.open_orders if worker else 0
