"""Who holds which models, as it is and as it might be; what that costs, in seconds.

Crowding is what dropped models are expected to cost: the fuller a worker, the likelier
its next load drops something. Waiting is what tasks wait because those who have their
model are busy, or for another copy of it where that is quicker.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from corral.scheduler.decide.cost import REUSE
from corral.scheduler.models.prefetch import HOUR_S, PER_HOUR
from corral.scheduler.world.fleet import FleetWorker, WorkerGroup
from corral.scheduler.world.picture import Picture

_LEAST_LOAD_S = 0.01
"""No load is for nothing."""
_FULL = 0.95
"""No worker is believed to be busier than this."""


@dataclass(slots=True)
class WhatIfWorker:
    """What one worker would hold."""

    real: FleetWorker
    models: set[str]
    used_mb: float
    is_free: bool
    """May it be asked to load and drop?"""

    @property
    def id(self) -> str:
        return self.real.worker_id


class WhatIf:
    """A copy to be moved about on; the picture stays as it is."""

    def __init__(
        self, picture: Picture, most_models: int, now: float, *, force: bool
    ) -> None:
        self._estimates = picture.estimates
        self._picture = picture
        self._now = now
        self._most_models = most_models
        self.workers = {
            worker_id: self._copy_of(real, force=force)
            for worker_id, real in sorted(picture.fleet.workers.items())
        }
        self._holders: dict[str, set[str]] = {}
        for worker in self.workers.values():
            for model in worker.models:
                self._holders.setdefault(model, set()).add(worker.id)
        self._groups: dict[str, list[WorkerGroup]] = {}
        self._busy: dict[str, float] = {}

    def _copy_of(self, real: FleetWorker, *, force: bool) -> WhatIfWorker:
        models = set(real.models)
        is_free = not real.is_held and (force or not real.open_orders)
        return WhatIfWorker(real, models, sum(map(self.size_mb, models)), is_free)

    # what is known -----------------------------------------------------------
    def size_mb(self, model: str) -> float:
        return self._estimates.size_mb(model)

    def load_s(self, model: str) -> float:
        return max(_LEAST_LOAD_S, self._estimates.load_s(model))

    def demand(self, model: str) -> float:
        return self._estimates.demand(model, self._now)

    def again(self, model: str) -> float:
        """How likely it is wanted again; what somebody loaded is, once at least."""
        return min(1.0, REUSE * max(1.0, self.demand(model)))

    def copies(self, model: str) -> int:
        return len(self._holders.get(model, ()))

    def wanted(self) -> Iterable[str]:
        """Models that tasks have asked for."""
        return sorted(self._picture.habits.models)

    def can_move(self, worker: WhatIfWorker, model: str) -> bool:
        pins = self._picture.fleet.pins.get(worker.id, ())
        held = worker.real.models.get(model)
        is_used = held is not None and held.in_use > 0
        return worker.is_free and model not in pins and not is_used

    def serving(self, model: str) -> list[WhatIfWorker]:
        """Those that could work with it, whether or not they have it."""
        found = sorted(w for group in self.groups(model) for w in group.workers)
        return [self.workers[worker_id] for worker_id in found]

    def groups(self, model: str) -> list[WorkerGroup]:
        """The same, as groups of equal workers."""
        groups = self._groups.get(model)
        if groups is None:
            groups = self._groups[model] = self._serving(model)
        return groups

    def _serving(self, model: str) -> list[WorkerGroup]:
        habit = self._picture.habits.models.get(model)
        if habit is not None:
            return self._picture.detached(habit.task).groups
        # Nobody has asked for it yet: workers like those that have it.
        holders = self._holders.get(model, ())
        types = {self.workers[worker_id].real.types for worker_id in holders}
        every = self._picture.fleet.groups.values()
        return [group for group in every if group.types in types]

    # room --------------------------------------------------------------------
    def room_mb(self, worker: WhatIfWorker) -> float | None:
        """What is left of its memory; None where nobody knows of a limit."""
        memory_mb = worker.real.memory_mb
        return None if memory_mb is None else memory_mb - worker.used_mb

    def has_room(self, worker: WhatIfWorker, model: str) -> bool:
        """Would it fit, and nothing be dropped?"""
        if model in worker.models or len(worker.models) >= self._most_models:
            return False
        left_mb = self.room_mb(worker)
        if left_mb is None:
            return True
        return self._estimates.has_seen(model) and self.size_mb(model) <= left_mb

    def fill(self, worker: WhatIfWorker) -> float:
        """Which part of its memory, or of the models it may have, is taken."""
        part = len(worker.models) / self._most_models
        if worker.real.memory_mb:
            part = max(part, worker.used_mb / worker.real.memory_mb)
        return min(1.0, part)

    def put(self, worker: WhatIfWorker, model: str) -> None:
        worker.models.add(model)
        worker.used_mb += self.size_mb(model)
        self._holders.setdefault(model, set()).add(worker.id)
        self._changed(worker, model)

    def take(self, worker: WhatIfWorker, model: str) -> None:
        worker.models.discard(model)
        worker.used_mb -= self.size_mb(model)
        self._holders[model].discard(worker.id)
        self._changed(worker, model)

    def _changed(self, worker: WhatIfWorker, model: str) -> None:
        for worker_id in (worker.id, *self._holders[model]):
            self._busy.pop(worker_id, None)

    # what it costs -----------------------------------------------------------
    def crowding_s(self, worker: WhatIfWorker) -> float:
        lost_s = sum(
            self.load_s(m) * self.again(m) / max(1, self.copies(m))
            for m in sorted(worker.models)
        )
        return self.fill(worker) * lost_s

    def waiting_s(self, models: Iterable[str]) -> float:
        """Of tasks of these models, within an hour like the last."""
        return sum(self._waiting_s(model) for model in sorted(models))

    def _waiting_s(self, model: str) -> float:
        count = self.demand(model) * PER_HOUR
        holders = sorted(self._holders.get(model, ()))
        if not count or not holders:
            return 0.0
        all_busy, left_s = 1.0, self.load_s(model)
        for worker_id in holders:
            worker = self.workers[worker_id]
            busy = self.busy(worker)
            all_busy *= busy
            left_s = min(left_s, self._run_s(model, worker) / (1.0 - busy))
        return count * all_busy * left_s

    def busy(self, worker: WhatIfWorker) -> float:
        """Which part of the time it works, if holders of a model share its tasks."""
        found = self._busy.get(worker.id)
        if found is None:
            found = self._busy[worker.id] = self._worked(worker)
        return found

    def _worked(self, worker: WhatIfWorker) -> float:
        total_s = sum(
            self.demand(m) * PER_HOUR / self.copies(m) * self._run_s(m, worker)
            for m in sorted(worker.models)
        )
        return min(_FULL, total_s / HOUR_S / worker.real.slots)

    def _run_s(self, model: str, worker: WhatIfWorker) -> float:
        habit = self._picture.habits.models.get(model)
        job_type = habit.task.job_type if habit is not None else ""
        return self._estimates.run_s(job_type, model) / worker.real.speed
