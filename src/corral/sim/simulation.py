"""Virtual time: tells the scheduler what a manager would, and does what it plans.

No clock and no chance: the same workload on the same machines gives the same record.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from corral.core.tasks.job_type import MODEL_TASK
from corral.scheduler.events import (
    AttemptEnded,
    DependencyMet,
    ModelKnown,
    NodeMarked,
    OrderClosed,
    SchedulerEvent,
    TasksQueued,
    TasksRan,
    WaitingTask,
    WorkerGone,
    WorkerReady,
)
from corral.scheduler.plan import Plan, Stop
from corral.scheduler.policy import Policy
from corral.scheduler.scheduler import Scheduler
from corral.sim.machine import Machine
from corral.sim.worker import RunningOrder, SimulatedWorker
from corral.sim.workload import Arrival, Workload

Advance = Callable[[int, int], object]
"""Called with how many tasks have ended, of how many."""
_IDLE_WAKES = 1_000
"""Looking again so often for nothing, while nothing runs: there is no more to come."""


@dataclass(slots=True)
class Record:
    """What happened, for whoever measures it."""

    workload: Workload
    machines: Sequence[Machine]
    ended_s: dict[str, float] = field(default_factory=dict)
    """By task, the seconds from its arrival to its end."""
    started_s: dict[str, float] = field(default_factory=dict)
    """By task, the seconds until its last attempt began."""
    expired: set[str] = field(default_factory=set)
    ends: Counter[str] = field(default_factory=Counter)
    redone: int = 0
    loads: int = 0
    cold: int = 0
    """Orders that began with a load: their tasks waited for it."""
    loading_s: float = 0.0
    busy_s: float = 0.0
    over_at: float = 0.0
    plans: int = 0

    @property
    def left(self) -> int:
        """Tasks that never ended."""
        return len(self.workload.arrivals) - len(self.ended_s) - len(self.expired)

    @property
    def doubled(self) -> int:
        """Ends too many."""
        return sum(count - 1 for count in self.ends.values())


class Simulation:
    """One run; `run` may be called once."""

    def __init__(
        self,
        workload: Workload,
        machines: Sequence[Machine],
        policy: Policy | None = None,
        on_progress: Advance = lambda done, total: None,
        scheduler: Scheduler | None = None,
    ) -> None:
        self.scheduler = scheduler or Scheduler(policy)
        self.record = Record(workload, machines)
        self.now = 0.0
        self._types = workload.job_types
        self._arrivals = {a.task.task_id: a for a in workload.arrivals}
        models = {model.name: model for model in workload.models}
        self._workers = {
            machine.name: SimulatedWorker(machine, models, self._arrivals)
            for machine in machines
        }
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._wake_at: float | None = None
        self._idle_wakes = 0
        self._fetch_at: set[float] = set()
        self._say = on_progress

    def run(self) -> Record:
        for model in self.record.workload.models:
            self._tell(ModelKnown(model.name, model.size_mb, model.load_s))
        for worker in self._workers.values():
            self._add(worker)
        for arrival in self.record.workload.arrivals:
            self._at(arrival.at, partial(self._arrive, arrival))
        while self._heap and self._idle_wakes < _IDLE_WAKES:
            self.now, _, happen = heapq.heappop(self._heap)
            happen()
            self._carry_out(self._plan())
            self._prefetch()
        for worker in self._workers.values():
            self.record.loads += worker.loads
            self.record.loading_s += worker.loading_s
            self.record.busy_s += worker.busy_s
        return self.record

    def _at(self, when: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (when, next(self._numbers), happen))

    def _tell(self, event: SchedulerEvent) -> None:
        self.scheduler.apply(event)

    # what happens -----------------------------------------------------------------
    def _add(self, worker: SimulatedWorker) -> None:
        machine, outages = worker.machine, worker.machine.outages
        if machine.labels or machine.taints:
            self._tell(NodeMarked(machine.node_id, machine.labels, machine.taints))
        if machine.offers is not None:
            self._tell(machine.offers)
        # One that comes later was down from the beginning.
        if not outages or outages[0][0] > 0.0:
            self._rise(worker)
        for down_at, up_at in outages:
            if down_at > 0.0:
                self._at(down_at, partial(self._fall, worker))
            if up_at < float("inf"):
                self._at(up_at, partial(self._rise, worker))

    def _arrive(self, arrival: Arrival) -> None:
        self._idle_wakes = 0
        self._tell(TasksQueued((arrival.task,)))

    def _rise(self, worker: SimulatedWorker) -> None:
        machine = worker.machine
        worker.is_up = True
        self._idle_wakes = 0
        self._tell(
            WorkerReady(
                machine.name,
                machine.node_id or machine.name,
                self._types if machine.job_types is None else machine.job_types,
                machine.slots,
                speed=machine.speed,
                memory_mb=machine.memory_mb,
            )
        )

    def _fall(self, worker: SimulatedWorker) -> None:
        for running in worker.running.values():
            self._note_ends(worker, running)
        lost = worker.fall(self.now)
        self._tell(WorkerGone(worker.machine.name))
        self._do_again(lost)

    def _do_again(self, tasks: Sequence[WaitingTask]) -> None:
        tasks = [task for task in tasks if task.job_type != MODEL_TASK]
        self.record.redone += len(tasks)
        # As they came, but for what they needed: they would not have begun.
        again = tuple(
            replace(
                self._arrivals[task.task_id].task,
                attempt=task.attempt + 1,
                needs=frozenset(),
            )
            for task in tasks
        )
        if again:
            self._tell(TasksQueued(again))

    def _stop(self, stop: Stop) -> None:
        """Take an order from its worker for the sake of another; part of it is done."""
        worker = self._workers[stop.worker_id]
        for number, running in list(worker.running.items()):
            left = [task for end, task in running.ends if end > self.now]
            if all(task.task_id != stop.task_id for task in left):
                continue
            del worker.running[number]
            self._note_ends(worker, running)
            for task in left:
                self._tell(AttemptEnded(task.task_id))
            self._tell(OrderClosed(worker.machine.name))
            self._do_again(left)
            self._begin_next(worker)

    def _close(self, worker: SimulatedWorker, number: int, epoch: int) -> None:
        if worker.epoch != epoch or number not in worker.running:
            return
        running = worker.running.pop(number)
        self._note_ends(worker, running)
        for (job_type, model, units), (count, seconds) in _ran(running).items():
            if job_type == MODEL_TASK:
                continue
            name = worker.machine.name
            self._tell(TasksRan(job_type, name, count, seconds, model, units))
        self._tell(OrderClosed(worker.machine.name))
        self._begin_next(worker)

    def _note_ends(self, worker: SimulatedWorker, running: RunningOrder) -> None:
        record, begun = self.record, running.loaded_at
        for end, task in running.ends:
            if end <= self.now and task.job_type != MODEL_TASK:
                came = self._arrivals[task.task_id].at
                record.ended_s[task.task_id] = end - came
                record.started_s[task.task_id] = begun - came
                record.ends[task.task_id] += 1
                worker.busy_s += end - begun
                self._tell(AttemptEnded(task.task_id, end - begun))
                begun = end
                if self.scheduler.dependents(task.task_id):
                    self._tell(DependencyMet(task.task_id))
        record.over_at = self.now
        self._say(len(record.ended_s), len(record.workload.arrivals))

    # what the plan says -----------------------------------------------------------
    def _plan(self) -> Plan:
        self.record.plans += 1
        plan = self.scheduler.plan(self.now)
        if plan.next_wake is not None and (
            self._wake_at is None or plan.next_wake < self._wake_at
        ):
            self._wake_at = max(plan.next_wake, self.now)
            self._at(self._wake_at, self._wake)
        return plan

    def _prefetch(self) -> None:
        """Load what is due, as a manager does between plans."""
        found = self.scheduler.prefetch(self.now)
        for load in found.loads:
            number = next(self._numbers)
            task = WaitingTask(
                f"{MODEL_TASK} {number}",
                1,
                MODEL_TASK,
                number,
                model=load.model,
                worker_id=load.worker_id,
                arrived=self.now,
            )
            self._arrivals[task.task_id] = Arrival(task, 0.0)
            self._tell(TasksQueued((task,)))
        if found.loads:
            self._carry_out(self._plan())
        if found.next_wake is not None and found.next_wake not in self._fetch_at:
            self._fetch_at.add(found.next_wake)
            self._at(found.next_wake, self._wake)

    def _wake(self) -> None:
        self._wake_at = None
        self._idle_wakes += 1

    def _carry_out(self, plan: Plan) -> None:
        self.record.expired.update(task.task_id for task in plan.expired)
        for stop in plan.preempt:
            self._stop(stop)
            self._at(self.now, self._wake)
        for order in plan.orders:
            self._idle_wakes = 0
            worker = self._workers[order.worker_id]
            worker.waiting.append(order)
            self._begin_next(worker)
        if self._idle_wakes and any(w.running for w in self._workers.values()):
            self._idle_wakes = 0

    def _begin_next(self, worker: SimulatedWorker) -> None:
        while worker.waiting and worker.has_slot:
            order = worker.waiting.popleft()
            running = worker.begin(order, self.now)
            is_asked = order.tasks[0].job_type != MODEL_TASK
            self.record.cold += is_asked and order.load is not None
            number, epoch = next(self._numbers), worker.epoch
            worker.running[number] = running
            self._at(running.over_at, partial(self._close, worker, number, epoch))


def _ran(running: RunningOrder) -> dict[tuple[str, str | None, int], tuple[int, float]]:
    """How long which kinds of tasks took, as a worker reports it."""
    told: dict[tuple[str, str | None, int], tuple[int, float]] = {}
    begun = running.loaded_at
    for end, task in running.ends:
        kind = (task.job_type, task.model, task.units)
        count, seconds = told.get(kind, (0, 0.0))
        told[kind] = (count + 1, seconds + end - begun)
        begun = end
    return told
