"""What is to be done: tasks, when they come, how long they really take."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from corral.errors import InvalidField
from corral.scheduler.events import WaitingTask

FIRST_S = 1e-6
"""When the first task comes; 0 would read as a time nobody knows."""
GENERATE = "generate"
"""The job type where nobody says one."""
TASKS = 5_000
MODELS = 60
SIZES_GB = (4.0, 6.0, 8.0, 12.0, 16.0, 20.0)
POPULARITY = 1.1
"""The model on place n is wanted n to the power of minus this as often."""
BURST = 4.0
"""Standard deviation of the gaps between arrivals, in means."""
HIGH_SHARE = 0.1
HIGH = 10


@dataclass(frozen=True, slots=True)
class Model:
    """What a model takes of a worker's memory, and of its time to be loaded."""

    name: str
    size_mb: float
    load_s: float


@dataclass(frozen=True, slots=True)
class Arrival:
    """A task and what nobody knows before it ran: its seconds on a worker of speed 1.

    It comes when it has `arrived`.
    """

    task: WaitingTask
    run_s: float

    @property
    def at(self) -> float:
        return self.task.arrived

    def moved(self, factor: float, origin: float) -> Arrival:
        """The same, so much nearer to the origin; it waits no longer of itself."""
        task = self.task
        at = (task.arrived - origin) * factor + FIRST_S
        later = at - task.arrived
        moved = replace(
            task,
            arrived=at,
            run_after=max(FIRST_S, task.run_after + later) if task.run_after else 0.0,
            deadline=None if task.deadline is None else task.deadline + later,
        )
        return replace(self, task=moved)


@dataclass(frozen=True, slots=True)
class Workload:
    """Arrivals in order, and the models they need."""

    arrivals: tuple[Arrival, ...]
    models: tuple[Model, ...] = ()

    @property
    def span_s(self) -> float:
        """From the first arrival to the last."""
        return self.arrivals[-1].at - self.arrivals[0].at

    @property
    def job_types(self) -> frozenset[str]:
        return frozenset(arrival.task.job_type for arrival in self.arrivals)

    def faster(self, factor: float) -> Workload:
        """The same tasks in so many times less time."""
        origin = self.arrivals[0].at
        moved = (arrival.moved(1.0 / factor, origin) for arrival in self.arrivals)
        return replace(self, arrivals=tuple(moved))

    def filling(self, share: float, speed: float) -> Workload:
        """The same tasks in the time in which they keep this share of `speed` busy."""
        wanted_s = sum(arrival.run_s for arrival in self.arrivals) / speed / share
        return self.faster(self.span_s / wanted_s) if self.span_s else self

    def anywhere(self) -> Workload:
        """The same, where no task asks for a certain worker or node."""
        return replace(
            self,
            arrivals=tuple(
                replace(a, task=replace(a.task, worker_id=None, constraint=None))
                for a in self.arrivals
            ),
        )

    def without_loads(self) -> Workload:
        """The same, where models are there at once: what loads cost is the rest."""
        return replace(
            self, models=tuple(replace(model, load_s=0.0) for model in self.models)
        )


def workload(arrivals: Iterable[Arrival], models: Sequence[Model] = ()) -> Workload:
    """A workload of some tasks, whatever their order, from time 0 on.

    Raises:
        InvalidField: there is no task, or one needs a model that nobody knows.
    """
    ordered = sorted(arrivals, key=lambda a: (a.at, a.task.seq))
    if not ordered:
        raise InvalidField("there is no task in this workload", field="workload")
    known = {model.name for model in models}
    for arrival in ordered:
        name = arrival.task.model
        if name is not None and name not in known:
            raise InvalidField(f"nobody says what model {name!r} takes", field="model")
    return Workload(tuple(ordered), tuple(models)).faster(1.0)


# A made-up workload: few models wanted often, many seldom; tasks come in bursts.


def synthetic(seed: int, tasks: int = TASKS, models: int = MODELS) -> Workload:
    """The same for the same seed; one task a second on average."""
    chance = random.Random(f"corral {seed}")
    sizes = [chance.choice(SIZES_GB) for _ in range(models)]
    made = [
        Model(f"model-{n:03}", size * 1024, 4.0 + 2.0 * size)
        for n, size in enumerate(sizes, 1)
    ]
    wanted = [n**-POPULARITY for n in range(1, models + 1)]
    typical_s = [chance.lognormvariate(2.5, 0.4) for _ in made]
    arrivals, now = [], 1.0
    for number in range(1, tasks + 1):
        now += chance.gammavariate(BURST**-2, BURST**2)
        (which,) = chance.choices(range(models), wanted)
        units = min(8, 1 + int(chance.expovariate(0.8)))
        task = WaitingTask(
            task_id=f"s{number:06}",
            attempt=1,
            job_type=GENERATE,
            seq=number,
            priority=HIGH if chance.random() < HIGH_SHARE else 0,
            model=made[which].name,
            arrived=now,
            units=units,
        )
        run_s = typical_s[which] * (0.4 + 0.3 * units) * chance.lognormvariate(0, 0.3)
        arrivals.append(Arrival(task, run_s))
    return workload(arrivals, made)
