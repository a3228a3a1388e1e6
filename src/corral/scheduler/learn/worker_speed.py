"""How fast each worker is beside the others, learned from what the same work takes.

A worker's offset is the logarithm of its speed. It is believed only when it is clear of
chance, in coarse steps: workers of about one speed stay alike, and seldom change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from corral.scheduler.learn.mean import Mean

_LEAST_WEIGHT = 0.02
_FIRST = 2.0
# How many runs of its own a worker needs to be believed by half.
_PRIOR = 4.0
_FIRST_SPREAD = 0.25
_MOST_STEP = 1.5
"""One run that is further out moves it as if it were no further."""
_MARGIN = 0.3
"""A smaller difference is worth less than what is lost where it is chance."""
_SURE = 4.0
_STEP = math.log(2.0) / 4
_MOST = math.log(10.0)
_SHORTEST_S = 0.01
"""In less a worker shows nothing but what it costs to be asked."""
_MOST_WORKERS = 20_000


@dataclass(slots=True)
class WorkerSpeed:
    count: float = 0.0
    offset: float = 0.0
    spread: float = _FIRST_SPREAD
    believed: float = 0.0
    """The offset that decisions go by."""

    def learn(self, off: float) -> float:
        """How far its offset moves when a run was off by so much."""
        self.count += 1.0
        weight = max(1.0 / (self.count + _FIRST), _LEAST_WEIGHT)
        off = min(_MOST_STEP, max(-_MOST_STEP, off))
        self.spread += weight * (off * off - self.spread)
        moved = weight * off
        self.offset += moved
        return moved

    def settle(self, own: float) -> float:
        """By what the worker's speed is multiplied, its offset beside others being so.

        1 while there is no reason to change it.
        """
        now, before = own * self.count / (self.count + _PRIOR), self.believed
        if not before and -_MARGIN < now < _MARGIN:
            return 1.0
        doubt = self._doubt()
        if abs(now) < doubt:
            # Once believed it must come half way back to be given up.
            if not before or abs(now) > doubt / 2:
                return 1.0
            now = 0.0
        elif abs(now - before) < 0.75 * _STEP:
            return 1.0
        self.believed = round(min(_MOST, max(-_MOST, now)) / _STEP) * _STEP
        return math.exp(self.believed - before)

    def _doubt(self) -> float:
        """What chance alone could make of its offset."""
        share = max(1.0 / max(1.0, self.count), _LEAST_WEIGHT / 2)
        return max(_MARGIN, _SURE * math.sqrt(self.spread * share))


class WorkerSpeeds:
    """The mean of all offsets is speed 1: what they share says nothing of one."""

    def __init__(self) -> None:
        self.by_worker: dict[str, WorkerSpeed] = {}
        self._sum = 0.0

    def factor(self, worker_id: str) -> float:
        """The speed of a worker, beside what it is said to have; 1 if not known."""
        pace = self.by_worker.get(worker_id)
        return math.exp(pace.believed) if pace is not None and pace.believed else 1.0

    def count(self, worker_id: str) -> int:
        """How many runs that is built on."""
        pace = self.by_worker.get(worker_id)
        return int(pace.count) if pace is not None else 0

    def learn(self, worker_id: str, kind: Mean, each: float, count: int) -> float:
        """Compare a run of this kind with what it takes others, then add it there.

        `each` is in seconds, at the speed the worker is said to have. By what that
        must be multiplied more than before.
        """
        if each < _SHORTEST_S:
            return 1.0
        took, moved, own = math.log(each), 1.0, 0.0
        pace = self.by_worker.get(worker_id)
        if not kind.count:
            kind.sole = worker_id
        elif kind.sole != worker_id:
            kind.sole = ""
            if pace is None:
                pace = self._new(worker_id)
            own = pace.offset - self._sum / len(self.by_worker)
            self._sum += pace.learn(kind.middle - took - own)
            own = pace.offset - self._sum / len(self.by_worker)
            moved = pace.settle(own)
        elif pace is not None:
            own = pace.offset - self._sum / len(self.by_worker)
        kind.centre(took + own, count)
        return moved

    def recall(self, worker_id: str, pace: WorkerSpeed) -> None:
        """Go on from what was known before."""
        known = self.by_worker.get(worker_id) or self._new(worker_id)
        self._sum += pace.offset - known.offset
        self.by_worker[worker_id] = pace

    def _new(self, worker_id: str) -> WorkerSpeed:
        while len(self.by_worker) >= _MOST_WORKERS:
            self._sum -= self.by_worker.pop(next(iter(self.by_worker))).offset
        pace = self.by_worker[worker_id] = WorkerSpeed()
        return pace
