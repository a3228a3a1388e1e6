"""What is known of durations, speeds, loads, memory and arrivals; all learned."""

from __future__ import annotations

import math
from collections.abc import Iterable

from corral.core.insight.learned import (
    LOAD,
    MEMORY,
    RECENT,
    RUN,
    SPEED,
    Figure,
    Learned,
)
from corral.scheduler.learn.mean import UNKNOWN_SPREAD, Mean
from corral.scheduler.learn.worker_speed import WorkerSpeed, WorkerSpeeds

_WEIGHT = 0.3
_UNKNOWN_S = 15.0
_UNKNOWN_LOAD_S = 20.0
# How many tasks of its own a kind needs to be believed as much as its line.
_PRIOR = 3.0
_HALF_LIFE_S = 3600.0
_MOST_UNITS = 64
_FADE = 0.02

Kind = tuple[str, str | None, int]
"""Job type, model, and size of input; 0 is any size."""
Place = tuple[str, str]
"""A model, and the worker that loads it; "" is any worker."""
_Subject = tuple[str, str, str, int, str]


class Estimates:
    """Durations are those of a worker of speed 1."""

    def __init__(self) -> None:
        self._runs: dict[Kind, Mean] = {}
        self._short: dict[str, float] = {}
        self._loads: dict[Place, Mean] = {}
        self._has_own_loads = False
        self._working: dict[Kind, Mean] = {}
        self._size_mb: dict[str, float] = {}
        self._rates: dict[str, tuple[float, float]] = {}
        self._all = Mean()
        self.speeds = WorkerSpeeds()
        self._changed: dict[_Subject, None] = {}
        # As these change with every run, what they are of is written out later.
        self._kinds: dict[Kind, None] = {}
        self._workers: dict[str, None] = {}

    # runs --------------------------------------------------------------------
    def learn(
        self,
        job_type: str,
        count: int,
        seconds: float,
        model: str | None = None,
        units: int = 0,
        speed: float = 1.0,
        worker_id: str = "",
    ) -> float:
        """Tasks took so long together; by what the worker's speed changes with that."""
        each = seconds / count
        self._learn_type(job_type, count, each)
        normal = each * speed
        self._all.add(normal, count)
        base = exact = self._run((job_type, model, 0))
        if units:
            exact = self._run((job_type, model, min(units, _MOST_UNITS)))
        moved = 1.0
        if worker_id:
            told_s = normal / self.speeds.factor(worker_id)
            moved = self.speeds.learn(worker_id, exact, told_s, count)
            self._workers[worker_id] = None
        base.learn(normal, count)
        if exact is not base:
            exact.learn(normal, count)
        return moved

    def _run(self, kind: Kind) -> Mean:
        found = self._runs.get(kind)
        if found is None:
            found = self._runs[kind] = Mean()
        self._kinds[kind] = None
        return found

    def _learn_type(self, job_type: str, count: int, each: float) -> None:
        old = self._short.get(job_type)
        if old is None:
            self._short[job_type] = each
            return
        weight = 1.0 if each > 4 * old else 1.0 - (1.0 - _WEIGHT) ** min(count, 8)
        self._short[job_type] = old + weight * (each - old)

    def recent_s(self, job_type: str) -> float | None:
        """Seconds per task of this type lately, on whatever worker."""
        return self._short.get(job_type)

    def run_s(self, job_type: str, model: str | None = None, units: int = 0) -> float:
        """Expected seconds at speed 1; what is rarely seen leans on what is like it."""
        known = self._runs.get((job_type, model, 0))
        if known is None:
            return self._all.value if self._all.count else _UNKNOWN_S
        base = known.value
        if units:
            exact = self._runs.get((job_type, model, min(units, _MOST_UNITS)))
            if exact is not None:
                total = exact.count + _PRIOR
                return (exact.value * exact.count + base * _PRIOR) / total
        return base

    def run(
        self, job_type: str, model: str | None = None, units: int = 0
    ) -> Figure | None:
        """The same with how sure it is; None before any such task has run."""
        known = self._runs.get((job_type, model, min(units, _MOST_UNITS)))
        known = known or self._runs.get((job_type, model, 0))
        if known is None:
            return None
        return known.figure(self.run_s(job_type, model, units))

    def spread(self, job_type: str, model: str | None = None) -> float:
        """How far runs lie from what is expected, as a deviation of logarithms."""
        known = self._runs.get((job_type, model, 0))
        return UNKNOWN_SPREAD if known is None else known.deviation()

    # memory ------------------------------------------------------------------
    def learn_working(
        self, job_type: str, mb: float, model: str | None = None, units: int = 0
    ) -> None:
        """A task took so much GPU memory beside its model; more is believed at once."""
        exact = (job_type, model, min(units, _MOST_UNITS))
        for kind in dict.fromkeys(((job_type, model, 0), exact)):
            known = self._working.setdefault(kind, Mean())
            known.learn(mb, 1)
            known.middle = max(mb, known.middle - _FADE * (known.middle - mb))
            self._changed[MEMORY, kind[0], kind[1] or "", kind[2], ""] = None

    def working_mb(
        self, job_type: str, model: str | None = None, units: int = 0
    ) -> float | None:
        """The most such tasks took of late beside their model; None: nobody knows."""
        found = self._working_of(job_type, model, units)
        return None if found is None else found.middle

    def working(
        self, job_type: str, model: str | None = None, units: int = 0
    ) -> Figure | None:
        """What such a task takes beside its model, and how sure that is."""
        found = self._working_of(job_type, model, units)
        return None if found is None else found.figure(found.value)

    def _working_of(self, job_type: str, model: str | None, units: int) -> Mean | None:
        exact = self._working.get((job_type, model, min(units, _MOST_UNITS)))
        return exact or self._working.get((job_type, model, 0))

    # models ------------------------------------------------------------------
    def know_model(
        self,
        model: str,
        size_mb: float | None,
        load_s: float | None,
        worker_id: str = "",
    ) -> None:
        if size_mb is not None:
            self._size_mb[model] = size_mb
        if load_s is None:
            return
        for place in dict.fromkeys(((model, ""), (model, worker_id))):
            self._loads.setdefault(place, Mean()).follow(load_s, _WEIGHT)
            self._changed[LOAD, "", model, 0, place[1]] = None
        self._has_own_loads |= bool(worker_id)

    def model(self, model: str) -> tuple[float | None, float | None]:
        """Size and load time of a model, as far as they are known."""
        load = self._loads.get((model, ""))
        return self._size_mb.get(model), load.value if load is not None else None

    def has_seen(self, model: str) -> bool:
        return model in self._size_mb or (model, "") in self._loads

    def load_s(self, model: str, worker_id: str = "") -> float:
        """Expected seconds; what a worker showed itself counts more and more."""
        known = self._loads.get((model, ""))
        if known is None:
            return _UNKNOWN_LOAD_S
        if worker_id and self._has_own_loads:
            own = self._loads.get((model, worker_id))
            if own is not None:
                total = own.count + _PRIOR
                return (own.value * own.count + known.value * _PRIOR) / total
        return known.value

    def load(self, model: str, worker_id: str = "") -> Figure | None:
        """The same with how sure it is; None before anybody has loaded it."""
        known = self._loads.get((model, worker_id)) or self._loads.get((model, ""))
        return known.figure(self.load_s(model, worker_id)) if known else None

    def size_mb(self, model: str) -> float:
        return self._size_mb.get(model, 0.0)

    # arrivals ----------------------------------------------------------------
    def arrived(self, model: str, now: float) -> None:
        self._rates[model] = (self.demand(model, now) + 1.0, now)

    def demand(self, model: str, now: float) -> float:
        """Arrivals of late, those of an hour ago counting half."""
        count, at = self._rates.get(model, (0.0, now))
        age = max(0.0, now - at)
        return float(count * math.exp2(-age / _HALF_LIFE_S))

    # from one start to the next ------------------------------------------------
    def changed(self) -> list[Learned]:
        """What was learned since this was asked last."""
        subjects = self._changed
        for job_type, model, units in self._kinds:
            subjects[RUN, job_type, model or "", units, ""] = None
            subjects[RECENT, job_type, "", 0, ""] = None
        for worker_id in filter(self.speeds.by_worker.__contains__, self._workers):
            subjects[SPEED, "", "", 0, worker_id] = None
        self._changed, self._kinds, self._workers = {}, {}, {}
        return [Learned(*subject, *self._figures(subject)) for subject in subjects]

    def _figures(self, subject: _Subject) -> tuple[float, float, float, float, str]:
        kind, job_type, model, units, worker_id = subject
        if kind == SPEED:
            pace = self.speeds.by_worker.get(worker_id) or WorkerSpeed()
            return pace.count, pace.offset, pace.spread, pace.believed, ""
        if kind == RECENT:
            return 1.0, self._short[job_type], 0.0, 0.0, ""
        if kind == LOAD:
            mean = self._loads[model, worker_id]
        else:
            of_kind = self._runs if kind == RUN else self._working
            mean = of_kind[job_type, model or None, units]
        return mean.count, mean.value, mean.spread, mean.middle, mean.sole

    def recall(self, rows: Iterable[Learned]) -> None:
        """Take up what an earlier scheduler has learned; before anything is learned."""
        for row in rows:
            mean = Mean(row.count, row.value, row.spread, row.middle, row.sole)
            kind: Kind = (row.job_type, row.model or None, row.units)
            if row.kind == RUN:
                self._runs[kind] = mean
                if not row.units:
                    self._all.add(row.value, 1)
            elif row.kind == RECENT:
                self._short[row.job_type] = row.value
            elif row.kind == LOAD:
                self._loads[row.model, row.worker_id] = mean
                self._has_own_loads |= bool(row.worker_id)
            elif row.kind == MEMORY:
                self._working[kind] = mean
            elif row.kind == SPEED:
                pace = WorkerSpeed(row.count, row.value, row.spread, row.middle)
                self.speeds.recall(row.worker_id, pace)
