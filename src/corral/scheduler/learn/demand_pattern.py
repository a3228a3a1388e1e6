"""When models are asked for: their rhythm and their hours of the day, all learned.

Kept small and within bounds, and read only when somebody asks what comes next.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from corral.scheduler.events import WaitingTask
from corral.scheduler.learn.estimate import Estimates

MOST_MODELS = 256
_WAKES = 32
_FEWEST, _LATEST = 3, 6
"""Of how many times between two bursts a rhythm is read."""
_REGULAR = 0.65
"""The part of them that must agree."""
_OFF = 0.15
"""Times agree that differ by no more than this part of them."""
_SURE = 0.02
"""It is not expected more sharply than this."""
_MISSES = 2
"""A rhythm that was missed more often than this is over."""
_SCALES = 6
_DAY_S, _SLOT_S = 86_400.0, 1_800.0
_KEPT = 0.8
"""What counts of a day on the next: four days alike make a habit."""
_LIKELY = 0.5


@dataclass(frozen=True, slots=True)
class Expected:
    """A model will be asked for between these times, as likely as `chance`."""

    at: float
    until: float
    chance: float


@dataclass(slots=True)
class Habit:
    """When one model was asked for; `task` is the last that did.

    `wakes` are arrivals after a pause in which it could have been loaded. `slots` has,
    for each half hour of the day in which it was asked for, how usual that is and the
    last day on which it was.
    """

    task: WaitingTask
    last: float = -math.inf
    wakes: list[float] = field(default_factory=list)
    slots: dict[int, tuple[float, int]] = field(default_factory=dict)
    _slot_until: float = -math.inf

    def note(self, task: WaitingTask, at: float, pause_s: float) -> None:
        self.task = task
        if at - self.last >= pause_s:
            self.wakes.append(at)
            del self.wakes[:-_WAKES]
        if at > self.last:
            self.last = at
        if at >= self._slot_until:
            self._slot_until = at - at % _SLOT_S + _SLOT_S
            self._note_slot(at)

    def _note_slot(self, at: float) -> None:
        day, slot = _slot(at)
        usual, before = self.slots.get(slot, (0.0, day - 1))
        if day > before:
            self.slots[slot] = (usual * _KEPT ** (day - before) + 1.0 - _KEPT, day)

    def expected(self, now: float, load_s: float) -> Expected | None:
        """The next time it will be asked for, if there is a habit.

        What could begin within `load_s` counts as the next.
        """
        found = [*self._rhythms(now), *self._of_day(now, load_s)]
        return min(found, key=lambda e: (e.at, -e.chance), default=None)

    # rhythms -----------------------------------------------------------------
    def _rhythms(self, now: float) -> Iterator[Expected]:
        """Bursts may have pauses of their own: each scale of pauses is looked at."""
        gaps = [b - a for a, b in pairwise(self.wakes)]
        if len(gaps) < _FEWEST:
            return
        least, seen = min(gaps), set()
        for scale in range(_SCALES + 1):
            pause_s = max(gaps) / 2**scale if scale else 0.0
            if scale and pause_s <= least:
                return
            starts = [self.wakes[0]]
            later = zip(self.wakes[1:], gaps, strict=True)
            starts += [at for at, gap in later if gap >= pause_s]
            if len(starts) not in seen:
                seen.add(len(starts))
                yield from _next(starts, now)

    # hours -------------------------------------------------------------------
    def _of_day(self, now: float, load_s: float) -> Iterator[Expected]:
        day, slot = _slot(now)
        begun = now - now % _SLOT_S
        usual, last = self.slots.get(slot, (0.0, day))
        if last < day and (chance := usual * _KEPT ** (day - last - 1)) >= _LIKELY:
            yield Expected(now, begun + _SLOT_S, chance)
            return
        ahead = begun + _SLOT_S
        while ahead - now <= load_s + _SLOT_S:
            day, slot = _slot(ahead)
            usual, last = self.slots.get(slot, (0.0, day))
            if (chance := usual * _KEPT ** max(0, day - last - 1)) >= _LIKELY:
                yield Expected(ahead, ahead + _SLOT_S, chance)
                return
            ahead += _SLOT_S


def _slot(at: float) -> tuple[int, int]:
    day, second = divmod(at, _DAY_S)
    return int(day), int(second // _SLOT_S)


def _next(starts: list[float], now: float) -> Iterator[Expected]:
    periods = [b - a for a, b in pairwise(starts)][-_LATEST:]
    if len(periods) < _FEWEST:
        return
    usual_s = median(periods)
    offs = [off for p in periods if (off := abs(p - usual_s)) <= _OFF * usual_s]
    if len(offs) < max(_FEWEST, math.ceil(_REGULAR * len(periods))):
        return
    off_s = _SURE * usual_s + 1.5 * max(offs)
    count = max(1, math.ceil((now - off_s - starts[-1]) / usual_s))
    if count <= 1 + _MISSES:
        due = starts[-1] + count * usual_s
        yield Expected(due - off_s, due + off_s, len(offs) / len(periods) / count)


class Habits:
    """Those of the models asked for last."""

    def __init__(self, estimates: Estimates) -> None:
        self._estimates = estimates
        self.models: dict[str, Habit] = {}

    def note(self, task: WaitingTask) -> None:
        """A task with a model could start from now on."""
        habit = self.see(task)
        at = max(task.arrived, task.run_after)
        habit.note(task, at, self._estimates.load_s(task.model or ""))

    def see(self, task: WaitingTask) -> Habit:
        """Remember the latest task of its model, and nothing of when it came."""
        model = task.model or ""
        habit = self.models.get(model)
        if habit is None:
            if len(self.models) >= MOST_MODELS:
                del self.models[min(self.models, key=self._last)]
            habit = self.models[model] = Habit(task)
        habit.task = task
        return habit

    def _last(self, model: str) -> tuple[float, str]:
        return self.models[model].last, model
