"""Models loaded before a task asks for them, on workers that have nothing to do.

By `rate`: what is asked for most, for its size, and is held by few. By `pattern`: what
a habit says will be asked for next, shortly before. What a load is expected to spare
must be worth twice what it costs others, both in seconds of tasks' waiting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from corral.scheduler.decide.cost import REUSE, CostModel
from corral.scheduler.learn.demand_pattern import Expected, Habit
from corral.scheduler.world.fleet import FleetWorker, WorkerGroup
from corral.scheduler.world.picture import Picture

OFF, RATE, PATTERN = "off", "rate", "pattern"
MODES = (OFF, RATE, PATTERN)
HOUR_S = 3600.0
PER_HOUR = math.log(2.0)
"""Arrivals to come within an hour, for each of demand: half of it is from the last."""
_WORTH = 2.0
_AGAIN_S = 600.0
_LEAD, _ASK_S = 1.25, 0.5
"""Loads do not always take as long, and asking for one takes a moment."""
_MOST = 8
_LATER = 0.1
"""The part of its load that dropping a model costs which will be fetched in time."""


@dataclass(frozen=True, slots=True)
class Load:
    """This worker should have this model before anybody asks for it."""

    worker_id: str
    model: str


@dataclass(frozen=True, slots=True)
class Prefetch:
    """`next_wake` is when time alone will bring a load."""

    loads: tuple[Load, ...] = ()
    next_wake: float | None = None


class PrefetchPlanner:
    """Asked between plans; what it names must be loaded by whoever asks."""

    def __init__(self, picture: Picture, costs: CostModel, mode: str) -> None:
        self._picture = picture
        self._costs = costs
        self._mode = mode
        self._asked: dict[tuple[str, str], float] = {}
        """Until when a load is not asked for again: by model and, by rate, worker."""

    def plan(self, now: float) -> Prefetch:
        if self._mode == OFF or self._picture.is_paused:
            return Prefetch()
        self._asked = {key: until for key, until in self._asked.items() if until > now}
        idle = {
            worker.worker_id: worker
            for worker in self._picture.fleet.workers.values()
            if is_idle(worker)
        }
        if not idle:
            return Prefetch()
        return self._by_rate(idle, now) if self._mode == RATE else self._due(idle, now)

    # by pattern --------------------------------------------------------------
    def _due(self, idle: dict[str, FleetWorker], now: float) -> Prefetch:
        loads: list[Load] = []
        wakes: list[float] = []
        for model, habit in self._picture.habits.models.items():
            coming = self._coming(model, habit, now)
            if coming is None or (model, "") in self._asked:
                continue
            begin = coming.at - _LEAD * self._picture.estimates.load_s(model) - _ASK_S
            if now < begin:
                wakes.append(begin)
            elif now < coming.until and idle and len(loads) < _MOST:
                found = self._place(model, habit, coming, idle, now)
                if found is not None:
                    self._asked[model, ""] = coming.until
                    del idle[found.worker_id]
                    loads.append(Load(found.worker_id, model))
        return Prefetch(tuple(loads), min(wakes, default=None))

    def _coming(self, model: str, habit: Habit, now: float) -> Expected | None:
        known = self._picture.estimates
        return (
            habit.expected(now, known.load_s(model)) if known.has_seen(model) else None
        )

    def _place(
        self,
        model: str,
        habit: Habit,
        coming: Expected,
        idle: dict[str, FleetWorker],
        now: float,
    ) -> FleetWorker | None:
        """The idle worker that loses least by it, if it is worth that."""
        groups = self._groups(habit)
        holders = self._picture.fleet.holders.get(model, {}).values()
        if any(not w.is_held and w.group in groups for w in holders):
            return None
        own = [worker for worker in idle.values() if worker.group in groups]
        gain_s = coming.chance * self._picture.estimates.load_s(model)
        losses = []
        for worker in own:
            lost_s = self._lost_s(worker, model, coming, now)
            if lost_s is not None:
                if len(own) == 1:
                    lost_s += self._delay_s(worker, model, now)
                losses.append((lost_s, worker.worker_id, worker))
        if not losses:
            return None
        lost_s, _, worker = min(losses, key=lambda loss: loss[:2])
        return worker if gain_s > _WORTH * lost_s else None

    def _lost_s(
        self, worker: FleetWorker, model: str, coming: Expected, now: float
    ) -> float | None:
        """What dropping others for it costs; None where it does not fit."""
        victims = self._costs.victims(worker, now)
        found = self._costs.room_for(worker, model, victims)
        if found is None:
            return None
        lost = {victim.model: victim.lost_s for victim in victims}
        return sum(self._missed_s(v, lost[v], coming, now) for v in found[0])

    def _missed_s(
        self, model: str, lost_s: float, coming: Expected, now: float
    ) -> float:
        habit = self._picture.habits.models.get(model)
        known = self._coming(model, habit, now) if habit is not None else None
        if known is None:
            return lost_s
        if known.at <= coming.at:
            return math.inf
        load_s = self._picture.estimates.load_s(model)
        return load_s if known.at < coming.until else _LATER * load_s

    def _delay_s(self, worker: FleetWorker, model: str, now: float) -> float:
        """What others would wait while the last idle worker loads it."""
        load_s, total = self._picture.estimates.load_s(model), 0.0
        for other, habit in self._picture.habits.models.items():
            if other == model or worker.group not in self._groups(habit):
                continue
            demand = self._picture.estimates.demand(other, now)
            count = demand * PER_HOUR / HOUR_S * load_s
            coming = self._coming(other, habit, now)
            if coming is not None and coming.at < now + load_s:
                count = max(count, coming.chance)
            total += count * load_s / 2.0
        return total

    # by rate -----------------------------------------------------------------
    def _by_rate(self, idle: dict[str, FleetWorker], now: float) -> Prefetch:
        loads: list[Load] = []
        wanted = self._wanted(now)
        for worker_id, worker in sorted(idle.items()):
            is_last = sum(w.group is worker.group for w in idle.values()) == 1
            model = self._best(worker, wanted, now, is_last=is_last)
            if model is not None:
                self._asked[model, worker_id] = now + _AGAIN_S
                loads.append(Load(worker_id, model))
                wanted = [want for want in wanted if want[0] != model]
            if len(loads) >= _MOST:
                break
        return Prefetch(tuple(loads))

    def _wanted(self, now: float) -> list[tuple[str, Habit, Sequence[WorkerGroup]]]:
        """Models that are asked for, those worth most first."""
        habits, known = self._picture.habits.models, self._picture.estimates
        found = [
            (-self._value(model, 1, now), model, habit)
            for model, habit in habits.items()
            if known.has_seen(model) and known.demand(model, now) >= 1.0
        ]
        found.sort(key=lambda row: row[:2])
        return [(model, habit, self._groups(habit)) for _, model, habit in found]

    def _best(
        self,
        worker: FleetWorker,
        wanted: Iterable[tuple[str, Habit, Sequence[WorkerGroup]]],
        now: float,
        *,
        is_last: bool,
    ) -> str | None:
        victims = self._costs.victims(worker, now)
        for model, _, groups in wanted:
            is_new = model not in worker.models and worker.group in groups
            if not is_new or (model, worker.worker_id) in self._asked:
                continue
            found = self._costs.room_for(worker, model, victims)
            if found is None:
                continue
            dropped, lost_s = found
            kept = sum(self._value(victim, 0, now) for victim in dropped)
            if self._value(model, 1, now) < _WORTH * kept:
                continue
            if is_last:
                lost_s += self._delay_s(worker, model, now)
            if self._gain_s(model, now) > _WORTH * lost_s:
                return model
        return None

    def _value(self, model: str, more: int, now: float) -> float:
        """What a copy of it is worth for its size, with so many more than there are."""
        known, copies = self._picture.estimates, self._picture.fleet.copies(model)
        worth = known.demand(model, now) * known.load_s(model)
        return worth / max(known.size_mb(model), 1.0) / max(1, copies + more) ** 2

    def _gain_s(self, model: str, now: float) -> float:
        known, copies = self._picture.estimates, self._picture.fleet.copies(model)
        wanted = known.demand(model, now) / (copies + 1)
        return known.load_s(model) * min(1.0, REUSE * wanted)

    def _groups(self, habit: Habit) -> Sequence[WorkerGroup]:
        return self._picture.detached(habit.task).groups


def is_idle(worker: FleetWorker) -> bool:
    """It has no order, and nothing waits that it could run."""
    return not worker.open_orders and not worker.is_held and not worker.group.waiting
