"""What waits, summed up by where it may go, and how long it will take those who can.

Autoscaling asks for this; nothing is placed by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from corral.core.nodes.labels import ANYWHERE, Constraint
from corral.scheduler.learn.estimate import Estimates
from corral.scheduler.world.fleet import FleetWorker, WorkerGroup
from corral.scheduler.world.line import TaskLine
from corral.scheduler.world.picture import Picture

_LOOK_AT = 64


@dataclass(frozen=True, slots=True)
class Demand:
    """Waiting tasks of one type that may go to the same nodes.

    `work_s` is what all that stands before those who can do them takes at speed 1,
    loads of models included; None before any task of the type has run. `speed` is
    that of those who can, together; the first of them is free in `soonest_s`.
    """

    job_type: str
    tasks: int
    waited_s: float = 0.0
    work_s: float | None = None
    speed: float = 0.0
    soonest_s: float = 0.0
    constraint: Constraint = ANYWHERE


def demands(picture: Picture, now: float) -> tuple[Demand, ...]:
    """Everything that waits for a worker and nothing else, by type and place."""
    if picture.is_paused:
        return ()
    lines = [f for f in picture.lines.values() if _is_open(f)]
    loads = _loads(lines, picture)
    found: dict[tuple[str, Constraint], list[TaskLine]] = {}
    for line in lines:
        key = line.job_type, line.constraint or ANYWHERE
        found.setdefault(key, []).append(line)
    ordered = sorted(found.items(), key=lambda item: (item[0][0], item[0][1].text))
    return tuple(
        _demand(job_type, constraint, some, loads, picture, now)
        for (job_type, constraint), some in ordered
    )


def _is_open(line: TaskLine) -> bool:
    """Could another worker start its tasks?

    Those with needs wait for what nodes have as long as a worker is free for them.
    """
    if not line or line.only is not None or line.is_aside:
        return False
    is_needy = line.need is not None or line.gang_size
    return not is_needy or not any(group.has_free(1) for group in line.groups)


def _loads(lines: list[TaskLine], picture: Picture) -> dict[int, float]:
    """Seconds of work before each group, lines shared by how fast their groups are."""
    loads: dict[int, float] = {}
    for line in lines:
        work_s = _work_s(line, picture)
        speeds = {id(group): _speed(group) for group in line.groups}
        together = sum(speeds.values())
        for group, speed in speeds.items():
            share = speed / together if together else 0.0
            loads[group] = loads.get(group, 0.0) + (work_s or 0.0) * share
    return loads


def _demand(
    job_type: str,
    constraint: Constraint,
    lines: list[TaskLine],
    loads: dict[int, float],
    picture: Picture,
    now: float,
) -> Demand:
    groups = {id(group): group for line in lines for group in line.groups}
    speed = sum(_speed(group) for group in groups.values())
    works = [_work_s(line, picture) for line in lines]
    known = [work_s for work_s in works if work_s is not None]
    work_s: float | None = None
    if len(known) == len(works):
        work_s = sum(loads[key] for key in groups) if speed else sum(known)
    return Demand(
        job_type,
        sum(map(len, lines)),
        max(line.waited_s(now) for line in lines),
        work_s,
        speed,
        min((_soonest_s(group, now) for group in groups.values()), default=0.0),
        constraint,
    )


def _work_s(line: TaskLine, picture: Picture) -> float | None:
    estimates: Estimates = picture.estimates
    if estimates.recent_s(line.job_type) is None:
        return None
    model = line.model
    is_warm = model is None or model in picture.fleet.holders
    load_s = 0.0 if is_warm or model is None else estimates.load_s(model)
    return len(line) * estimates.run_s(line.job_type, model) + load_s


def _open(group: WorkerGroup) -> Iterator[FleetWorker]:
    """Those of its workers that get anything, the least loaded first."""
    return (worker for lane in group.lanes for worker in lane.values())


def _speed(group: WorkerGroup) -> float:
    first = next(_open(group), None)
    if first is None:
        return 0.0
    return first.speed * group.slots * sum(len(lane) for lane in group.lanes)


def _soonest_s(group: WorkerGroup, now: float) -> float:
    some = islice(_open(group), _LOOK_AT)
    return min((worker.residual_s(now) for worker in some), default=0.0)
