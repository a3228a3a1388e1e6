"""What a journal tells of a cluster: which tasks came, how long they took, on what.

Only what the scheduler saw: a task that never ran gets the mean of its kind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from corral.errors import InvalidField
from corral.scheduler.events import (
    AttemptEnded,
    ModelKnown,
    NodeMarked,
    NodeOffers,
    TasksGone,
    TasksQueued,
    TasksRan,
    WaitingTask,
    WorkerAway,
    WorkerBroken,
    WorkerGone,
    WorkerReady,
)
from corral.scheduler.scheduler import Scheduler
from corral.scheduler.world.fleet import FleetWorker
from corral.sim.journal import Planned, RecordedJournal, Step, plans
from corral.sim.machine import Machine, Period
from corral.sim.workload import Arrival, Model, Workload, workload

_UNKNOWN_LOAD_S = 20.0
_FOREVER = float("inf")

Kind = tuple[str, str | None]


@dataclass(slots=True)
class _Past:
    """What was gathered so far; `now` is the time of the plan at hand."""

    now: float
    tasks: dict[str, WaitingTask] = field(default_factory=dict)
    run_s: dict[str, float] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    given: dict[str, dict[str, WaitingTask]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """By worker, tasks it was given and nobody said yet how long they took."""
    where: dict[str, str] = field(default_factory=dict)
    machines: dict[str, Machine] = field(default_factory=dict)
    marks: dict[str, NodeMarked] = field(default_factory=dict)
    offers: dict[str, NodeOffers] = field(default_factory=dict)
    down_since: dict[str, float] = field(default_factory=dict)
    outages: dict[str, list[Period]] = field(default_factory=lambda: defaultdict(list))
    models: dict[str, Model] = field(default_factory=dict)


def from_journal(journal: RecordedJournal) -> tuple[Workload, list[Machine]]:
    """The workload and the workers that a journal has seen.

    Raises:
        InvalidField: there was none of either.
    """
    began = next(plans(journal), None)
    past = _Past(began.now if began else 0.0)
    scheduler = journal.scheduler()
    _begin(past, scheduler)
    # Events bear no time: a plan follows them at once, and does.
    told: list[Step] = []
    for step in journal.steps:
        told.append(step)
        if isinstance(step, Planned):
            past.now = step.now
            for each in told:
                _follow(past, each)
            told.clear()
    for each in told:
        _follow(past, each)
    for task in past.tasks.values():
        if task.model is not None:
            _know(past, task.model, *scheduler.known_model(task.model))
    arrivals = _arrivals(past)
    if not arrivals or not past.machines:
        raise InvalidField(
            "nothing happened in this journal: it has no tasks, or no workers",
            field="journal",
        )
    origin = min(arrival.at for arrival in arrivals)
    return workload(arrivals, list(past.models.values())), _machines(past, origin)


def _begin(past: _Past, scheduler: Scheduler) -> None:
    """What was there already when the journal began."""
    for worker in scheduler.workers():
        past.machines[worker.worker_id] = _machine(worker)
        if (offers := scheduler.offers(worker.node_id)) is not None:
            past.offers[worker.node_id] = offers
    for task in scheduler.waiting():
        past.tasks[task.task_id] = replace(task, arrived=past.now)


def _machine(worker: FleetWorker) -> Machine:
    place = worker.group.place
    return Machine(
        worker.worker_id,
        worker.memory_mb,
        worker.speed,
        worker.slots,
        worker.types,
        worker.node_id,
        place.labels,
        place.taints,
    )


def _follow(past: _Past, step: Step) -> None:
    match step:
        case Planned():
            for order in step.plan.orders:
                for task in order.tasks:
                    past.given[order.worker_id][task.task_id] = task
                    past.where[task.task_id] = order.worker_id
        case TasksQueued(tasks):
            for task in tasks:
                at = task.arrived or past.now
                past.tasks.setdefault(task.task_id, replace(task, arrived=at))
        case TasksGone(task_ids):
            past.gone.update(task_ids)
        case TasksRan():
            _learn(past, step)
        case AttemptEnded(task_id, seconds) if seconds > 0.0:
            _learn_one(past, task_id, seconds)
        case ModelKnown(model, size_mb, load_s):
            _know(past, model, size_mb, load_s)
        case NodeMarked(node_id):
            past.marks[node_id] = step
        case NodeOffers(node_id):
            past.offers[node_id] = step
        case WorkerReady():
            _rise(past, step)
        case WorkerGone() | WorkerBroken() | WorkerAway():
            past.given.pop(step.worker_id, None)
            if step.worker_id in past.machines:
                past.down_since.setdefault(step.worker_id, past.now)


def _learn(past: _Past, ran: TasksRan) -> None:
    """Tasks of this kind that the worker has had longest took so long each."""
    given = past.given[ran.worker_id]
    alike = [
        task_id
        for task_id, task in given.items()
        if (task.job_type, task.model) == (ran.job_type, ran.model)
    ]
    for task_id in alike[: ran.count]:
        del given[task_id]
        past.run_s[task_id] = ran.seconds / ran.count * _speed(past, ran.worker_id)


def _learn_one(past: _Past, task_id: str, seconds: float) -> None:
    worker_id = past.where.get(task_id, "")
    past.given[worker_id].pop(task_id, None)
    past.run_s[task_id] = seconds * _speed(past, worker_id)


def _speed(past: _Past, worker_id: str) -> float:
    machine = past.machines.get(worker_id)
    return machine.speed if machine else 1.0


def _know(past: _Past, name: str, size_mb: float | None, load_s: float | None) -> None:
    known = past.models.get(name) or Model(name, 0.0, _UNKNOWN_LOAD_S)
    past.models[name] = Model(
        name,
        known.size_mb if size_mb is None else size_mb,
        known.load_s if load_s is None else load_s,
    )


def _rise(past: _Past, ready: WorkerReady) -> None:
    name = ready.worker_id
    if name not in past.machines:
        # It was not there before: down from the beginning until now.
        past.down_since[name] = -_FOREVER
    if (since := past.down_since.pop(name, None)) is not None:
        past.outages[name].append((since, past.now))
    past.machines[name] = Machine(
        name,
        ready.memory_mb,
        ready.speed,
        ready.slots,
        ready.job_types,
        ready.node_id,
    )


def _arrivals(past: _Past) -> list[Arrival]:
    kept = {
        task_id: task
        for task_id, task in past.tasks.items()
        if task_id in past.run_s or task_id not in past.gone
    }
    means = _means(kept, past.run_s)
    overall = sum(past.run_s.values()) / len(past.run_s) if past.run_s else 1.0
    found = []
    for number, task in enumerate(kept.values(), 1):
        run_s = past.run_s.get(task.task_id)
        if run_s is None:
            run_s = means.get((task.job_type, task.model), overall)
        own = task.worker_id if task.worker_id in past.machines else None
        made = replace(
            task, attempt=1, seq=number, needs=task.needs & kept.keys(), worker_id=own
        )
        found.append(Arrival(made, max(run_s, 1e-6)))
    return found


def _means(
    tasks: Mapping[str, WaitingTask], run_s: Mapping[str, float]
) -> dict[Kind, float]:
    sums: dict[Kind, tuple[int, float]] = {}
    for task_id, task in tasks.items():
        if task_id in run_s:
            kind = (task.job_type, task.model)
            count, total = sums.get(kind, (0, 0.0))
            sums[kind] = (count + 1, total + run_s[task_id])
    return {kind: total / count for kind, (count, total) in sums.items()}


def _machines(past: _Past, origin: float) -> list[Machine]:
    for name, since in past.down_since.items():
        past.outages[name].append((since, _FOREVER))
    found = []
    for name, machine in past.machines.items():
        outages = [
            (max(0.0, down - origin), up - origin)
            for down, up in past.outages[name]
            if up > origin
        ]
        mark = past.marks.get(machine.node_id)
        if mark is not None:
            machine = replace(machine, labels=mark.labels, taints=mark.taints)
        offers = past.offers.get(machine.node_id)
        found.append(replace(machine, outages=tuple(outages), offers=offers))
    return found
