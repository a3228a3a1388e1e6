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

    worker: FleetWorker
    models: set[str]
    used_mb: float
    is_free: bool
    """May it be asked to load and drop?"""

    @property
    def id(self) -> str:
        return self.worker.worker_id


class WhatIf:
    """A copy to be moved about on; the picture stays as it is."""

    def __init__(
        self, picture: Picture, most_models: int, now: float, *, force: bool
    ) -> None:
        self._known = picture.known
        self._picture = picture
        self._now = now
        self._most_models = most_models
        workers = sorted(picture.fleet.workers.items())
        self.shelves = {
            worker_id: self._shelf(worker, force=force) for worker_id, worker in workers
        }
        self._holders: dict[str, set[str]] = {}
        for shelf in self.shelves.values():
            for model in shelf.models:
                self._holders.setdefault(model, set()).add(shelf.id)
        self._groups: dict[str, list[WorkerGroup]] = {}
        self._busy: dict[str, float] = {}

    def _shelf(self, worker: FleetWorker, *, force: bool) -> WhatIfWorker:
        models = set(worker.models)
        is_free = not worker.is_held and (force or not worker.open_orders)
        return WhatIfWorker(worker, models, sum(map(self.size_mb, models)), is_free)

    # what is known -----------------------------------------------------------
    def size_mb(self, model: str) -> float:
        return self._known.size_mb(model)

    def load_s(self, model: str) -> float:
        return max(_LEAST_LOAD_S, self._known.load_s(model))

    def demand(self, model: str) -> float:
        return self._known.demand(model, self._now)

    def again(self, model: str) -> float:
        """How likely it is wanted again; what somebody loaded is, once at least."""
        return min(1.0, REUSE * max(1.0, self.demand(model)))

    def copies(self, model: str) -> int:
        return len(self._holders.get(model, ()))

    def wanted(self) -> Iterable[str]:
        """Models that tasks have asked for."""
        return sorted(self._picture.habits.models)

    def can_move(self, shelf: WhatIfWorker, model: str) -> bool:
        pins = self._picture.fleet.pins.get(shelf.id, ())
        held = shelf.worker.models.get(model)
        is_used = held is not None and held.in_use > 0
        return shelf.is_free and model not in pins and not is_used

    def serving(self, model: str) -> list[WhatIfWorker]:
        """Those that could work with it, whether or not they have it."""
        found = sorted(w for group in self.groups(model) for w in group.workers)
        return [self.shelves[worker_id] for worker_id in found]

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
        types = {self.shelves[worker_id].worker.types for worker_id in holders}
        every = self._picture.fleet.groups.values()
        return [group for group in every if group.types in types]

    # room --------------------------------------------------------------------
    def room_mb(self, shelf: WhatIfWorker) -> float | None:
        """What is left of its memory; None where nobody knows of a limit."""
        memory_mb = shelf.worker.memory_mb
        return None if memory_mb is None else memory_mb - shelf.used_mb

    def has_room(self, shelf: WhatIfWorker, model: str) -> bool:
        """Would it fit, and nothing be dropped?"""
        if model in shelf.models or len(shelf.models) >= self._most_models:
            return False
        left_mb = self.room_mb(shelf)
        if left_mb is None:
            return True
        return self._known.has_seen(model) and self.size_mb(model) <= left_mb

    def fill(self, shelf: WhatIfWorker) -> float:
        """Which part of its memory, or of the models it may have, is taken."""
        part = len(shelf.models) / self._most_models
        if shelf.worker.memory_mb:
            part = max(part, shelf.used_mb / shelf.worker.memory_mb)
        return min(1.0, part)

    def put(self, shelf: WhatIfWorker, model: str) -> None:
        shelf.models.add(model)
        shelf.used_mb += self.size_mb(model)
        self._holders.setdefault(model, set()).add(shelf.id)
        self._changed(shelf, model)

    def take(self, shelf: WhatIfWorker, model: str) -> None:
        shelf.models.discard(model)
        shelf.used_mb -= self.size_mb(model)
        self._holders[model].discard(shelf.id)
        self._changed(shelf, model)

    def _changed(self, shelf: WhatIfWorker, model: str) -> None:
        for worker_id in (shelf.id, *self._holders[model]):
            self._busy.pop(worker_id, None)

    # what it costs -----------------------------------------------------------
    def crowding_s(self, shelf: WhatIfWorker) -> float:
        lost_s = sum(
            self.load_s(m) * self.again(m) / max(1, self.copies(m))
            for m in sorted(shelf.models)
        )
        return self.fill(shelf) * lost_s

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
            shelf = self.shelves[worker_id]
            busy = self.busy(shelf)
            all_busy *= busy
            left_s = min(left_s, self._run_s(model, shelf) / (1.0 - busy))
        return count * all_busy * left_s

    def busy(self, shelf: WhatIfWorker) -> float:
        """Which part of the time it works, if holders of a model share its tasks."""
        found = self._busy.get(shelf.id)
        if found is None:
            found = self._busy[shelf.id] = self._worked(shelf)
        return found

    def _worked(self, shelf: WhatIfWorker) -> float:
        total_s = sum(
            self.demand(m) * PER_HOUR / self.copies(m) * self._run_s(m, shelf)
            for m in sorted(shelf.models)
        )
        return min(_FULL, total_s / HOUR_S / shelf.worker.slots)

    def _run_s(self, model: str, shelf: WhatIfWorker) -> float:
        habit = self._picture.habits.models.get(model)
        job_type = habit.task.job_type if habit is not None else ""
        return self._known.run_s(job_type, model) / shelf.worker.speed
