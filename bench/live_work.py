"""The tasks of the live comparison: parts of the recorded slice, in less time.

The same tasks go to a real cluster and to the simulator. Before them come a few that
teach either the load times and runs of all models, whatever the strategy.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.meter import BenchError
from corral.scheduler.events import WaitingTask
from corral.scheduler.policy import Policy
from corral.sim.machine import parse_fleet, speed_of
from corral.sim.measure import SLO, quantile
from corral.sim.simulation import Simulation
from corral.sim.trace import SLICE, read_trace
from corral.sim.workload import Arrival, Model, Workload, workload

MODELS = 20
FLEET = "8x14GB"
LOAD = 0.2
JOB_TYPE = "draw"
# Time for the tasks before the first that counts.
LESSON_S = 10.0


@dataclass(frozen=True, slots=True)
class Work:
    """`lessons`, one for each model, then `arrivals`, from time 0 on each."""

    lessons: tuple[Arrival, ...]
    arrivals: tuple[Arrival, ...]
    models: tuple[Model, ...]

    @property
    def mean_run_s(self) -> float:
        return sum(a.run_s for a in self.arrivals) / len(self.arrivals)


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of the tasks that count; times are seconds from arrival to end."""

    mean_s: float
    p50_s: float
    p99_s: float
    slo_pct: float
    loads: int
    took_s: tuple[float, ...] = ()


def parts(traces: Path, count: int, tasks: int, seconds: float) -> Iterator[Work]:
    """The beginnings of equal parts of the slice, each made to last `seconds`.

    Of the slice those of the most wanted models are taken. Runs and loads shrink as
    the gaps do, so that runs alone keep `LOAD` of the workers busy.

    Raises:
        BenchError: the slice is not there, or too short.
    """
    if not (traces / SLICE).is_file():
        raise BenchError(f"no {SLICE} in {traces}: TRACES names the folder that has it")
    recorded = read_trace(traces)
    wanted = Counter(a.task.model for a in recorded.arrivals)
    names = {name for name, _ in wanted.most_common(MODELS)}
    models = [model for model in recorded.models if model.name in names]
    able = [a for a in recorded.arrivals if a.task.model in names]
    if len(able) < count * tasks:
        raise BenchError(f"the slice has {len(able)} tasks, not {count} x {tasks}")
    for number in range(count):
        begin = number * len(able) // count
        yield _compressed(workload(able[begin : begin + tasks], models), seconds)


def _compressed(part: Workload, seconds: float) -> Work:
    filled = part.filling(LOAD, speed_of(parse_fleet(FLEET)))
    share = seconds / filled.span_s
    arrivals = tuple(
        replace(moved, run_s=moved.run_s * share, task=_plain(moved.task))
        for moved in (a.moved(share, 0.0) for a in filled.arrivals)
    )
    models = tuple(replace(m, load_s=m.load_s * share) for m in filled.models)
    mean_s = sum(a.run_s for a in arrivals) / len(arrivals)
    lessons = tuple(
        Arrival(
            WaitingTask(f"lesson-{n}", 1, JOB_TYPE, n, model=model.name, arrived=1e-6),
            mean_s,
        )
        for n, model in enumerate(models, 1)
    )
    return Work(lessons, arrivals, models)


def _plain(task: WaitingTask) -> WaitingTask:
    """What a cluster would know: the size of its input says nothing here."""
    return replace(task, job_type=JOB_TYPE, units=0)


def simulated(work: Work, strategy: str) -> Figures:
    """The same in virtual time, by the product's own simulator."""
    later = (
        replace(a, task=replace(a.task, arrived=a.at + LESSON_S, seq=a.task.seq + 1000))
        for a in work.arrivals
    )
    both = Workload((*work.lessons, *later), work.models)
    policy = Policy(order_max_tasks=1, strategy=strategy)
    record = Simulation(both, parse_fleet(FLEET), policy).run()
    return figures(work, record.ended_s, record.loads - len(work.lessons))


def figures(work: Work, took_s: Mapping[str, float], loads: int) -> Figures:
    """`took_s` has the seconds of every task by its id."""
    all_s = [took_s[a.task.task_id] for a in work.arrivals]
    in_time = sum(
        took <= SLO * a.run_s for took, a in zip(all_s, work.arrivals, strict=True)
    )
    ordered = sorted(all_s)
    return Figures(
        mean_s=sum(ordered) / len(ordered),
        p50_s=quantile(ordered, 0.5) or 0.0,
        p99_s=quantile(ordered, 0.99) or 0.0,
        slo_pct=100.0 * in_time / len(ordered),
        loads=loads,
        took_s=tuple(ordered),
    )


def in_order(means: Sequence[float]) -> bool:
    """Is each smaller than the next?"""
    return all(one < two for one, two in itertools.pairwise(means))
