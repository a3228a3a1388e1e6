"""When a waiting task will start: an expectation, and an interval that is kept honest.

The expectation comes from who is free when and what stands before the task. How wrong
such expectations are is learned from those that came true: the interval is where 80 of
100 tasks with such an expectation started.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from corral.scheduler.decide.cost import BATCH, CostModel
from corral.scheduler.events import WaitingTask
from corral.scheduler.explain.decisions import Recent
from corral.scheduler.explain.values import ExpectedStart
from corral.scheduler.learn.estimate import Estimates
from corral.scheduler.world.fleet import Fleet, FleetWorker, WorkerGroup
from corral.scheduler.world.line import TaskLine

_KEPT = 20_000
_GRAIN_S = 1.0
"""Errors far below this do not matter."""
_STEP = 0.05
_FIRST_STEP = 0.5
_BUCKETS = 8
_LOOK_AT = 64
_TAIL = 1.28
"""So many deviations from the middle is one of ten, on either side."""


class Calibration:
    """Where the real wait lies relative to the expected one, as logarithms.

    Each bound moves a little after each task: up when too many lie above it, down when
    too few do, so that in the long run the right share does, whatever changes.
    """

    def __init__(self, spread: float) -> None:
        self.low, self.middle, self.high = -_TAIL * spread, 0.0, _TAIL * spread
        self._count = 0

    def learn(self, error: float) -> None:
        self._count += 1
        step = max(_STEP, _FIRST_STEP / self._count)
        self.low += step * (0.1 - (error < self.low))
        self.middle += step * (0.5 - (error < self.middle))
        self.high += step * (0.9 - (error <= self.high))


@dataclass(frozen=True, slots=True)
class _Made:
    """What was said of a task when it was first asked for."""

    now: float
    wait_s: float
    low: float
    high: float


class Forecasts:
    def __init__(self, fleet: Fleet, estimates: Estimates, costs: CostModel) -> None:
        self._fleet = fleet
        self._estimates = estimates
        self._costs = costs
        self._made: Recent[_Made] = Recent(_KEPT)
        self._learned: dict[int, Calibration] = {}
        self.checked = 0
        self.kept = 0
        """Of those checked, how many started within their interval."""

    def expect(
        self, task: WaitingTask, line: TaskLine, now: float
    ) -> ExpectedStart | None:
        """When this task starts, if its kind and a worker for it are known.

        What is said first of a task is held against when it starts.
        """
        wait_s = self.wait_s(task, line, now)
        if wait_s is None:
            return None
        found = self._calibration(wait_s, task)
        low = now + _scaled(wait_s, found.low)
        high = now + _scaled(wait_s, found.high)
        at = min(max(low, now + _scaled(wait_s, found.middle)), high)
        if self._made.get(task.task_id) is None:
            self._made.note(task.task_id, _Made(now, wait_s, low, high))
        return ExpectedStart(at, low, high)

    def started(self, task_id: str, now: float) -> None:
        """A task starts: learn from what was said of it."""
        made = self._made.pop(task_id)
        if made is None:
            return
        self.checked += 1
        self.kept += made.low <= now <= made.high
        error = math.log(
            (now - made.now + _GRAIN_S) / (made.wait_s + _GRAIN_S),
        )
        self._learned[_bucket(made.wait_s)].learn(error)

    def has_any(self) -> bool:
        return len(self._made) > 0

    def _calibration(self, wait_s: float, task: WaitingTask) -> Calibration:
        bucket = _bucket(wait_s)
        found = self._learned.get(bucket)
        if found is None:
            spread = self._estimates.spread(task.job_type, task.model)
            found = self._learned[bucket] = Calibration(spread)
        return found

    # the expectation ------------------------------------------------------------
    def wait_s(self, task: WaitingTask, line: TaskLine, now: float) -> float | None:
        """Seconds before it starts, before anything is learned of such answers.

        Half way between when its turn comes and when one that has its model can take
        it: the one is too early when better ones keep coming, the other when they do
        not.
        """
        workers = [w for w in self._soon(line) if not w.is_held]
        if not workers or self._estimates.recent_s(task.job_type) is None:
            return None
        speed = sum(_speed(group) for group in line.groups)
        soonest = min(worker.residual_s(now) for worker in workers)
        own_s = line.queue.ahead(task) * self._run_s(line)
        turn_s = soonest + (own_s + self._before_s(line, now)) / max(speed, 1e-9)
        holders = [
            holder
            for holder in islice(self._holders(line), _LOOK_AT)
            if not holder.is_held
        ]
        if not holders:
            return turn_s
        together = sum(holder.speed * holder.slots for holder in holders)
        held_s = min(h.residual_s(now) for h in holders) + own_s / together
        return (turn_s + held_s) / 2

    def _soon(self, line: TaskLine) -> Iterator[FleetWorker]:
        """Those that could take it, a few of each group: the longest at work first."""
        if line.only is not None:
            only = self._fleet.workers.get(line.only)
            return iter((only,) if only is not None else ())
        return (
            worker for group in line.groups for worker in islice(_open(group), _LOOK_AT)
        )

    def _holders(self, line: TaskLine) -> Iterable[FleetWorker]:
        return self._fleet.holders.get(line.model or "", {}).values()

    def _before_s(self, line: TaskLine, now: float) -> float:
        """Seconds of work, at speed 1, of those lines that are better served."""
        mine = self._rank(line, now)
        total = 0.0 if self._is_warm(line) else self._load_s(line)
        others: dict[str, TaskLine] = {}
        for group in line.groups:
            others.update(islice(group.waiting.items(), _LOOK_AT - len(others)))
        before_s = 0.0
        for other in others.values():
            if other is line or not other or self._rank(other, now) < mine:
                continue
            before_s += len(other) * self._run_s(other)
            before_s += 0.0 if self._is_warm(other) else self._load_s(other)
        # Those not looked at are taken to be like those that were.
        every = max((len(group.waiting) for group in line.groups), default=0)
        return total + before_s * max(1.0, every / max(1, len(others)))

    def _rank(self, line: TaskLine, now: float) -> tuple[float, ...]:
        batch = min(BATCH, len(line))
        setup_s = 0.0 if self._is_warm(line) else self._load_s(line)
        weight = line.weight(max(1, batch), now)
        score = weight / (setup_s + batch * self._run_s(line) + 1e-9)
        return self._costs.tier(line, now), line.priority, score

    def _is_warm(self, line: TaskLine) -> bool:
        return line.model is None or line.model in self._fleet.holders

    def _run_s(self, line: TaskLine) -> float:
        return self._estimates.run_s(line.job_type, line.model)

    def _load_s(self, line: TaskLine) -> float:
        return self._estimates.load_s(line.model) if line.model else 0.0


def _open(group: WorkerGroup) -> Iterator[FleetWorker]:
    return (worker for lane in group.lanes for worker in lane.values())


def _speed(group: WorkerGroup) -> float:
    """What its workers that get anything do together, in seconds a second."""
    first = next(_open(group), None)
    if first is None:
        return 0.0
    return first.speed * group.slots * sum(len(lane) for lane in group.lanes)


def _scaled(wait_s: float, by: float) -> float:
    return max(0.0, (wait_s + _GRAIN_S) * math.exp(by) - _GRAIN_S)


def _bucket(wait_s: float) -> int:
    """Expectations of about the same length are wrong in about the same way."""
    return min(_BUCKETS, int(math.log2(wait_s + 1.0) / 2))
