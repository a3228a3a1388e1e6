"""Whose turn it is when a task has waited far too long.

Such a task may pass better ones. Within a job type each of those is passed once only:
it goes before the next that has waited too long. Critical ones are never passed. And
lines that were left to others are looked at again after a while.
"""

from __future__ import annotations

from collections.abc import Iterable

from corral.scheduler.events import WaitingTask

OVERDUE_S = 900.0
OVERDUE_RUNS = 10.0


def overdue_s(run_s: float) -> float:
    """How long a task that takes so long may wait before it goes first."""
    return max(OVERDUE_S, OVERDUE_RUNS * run_s)


class PassedTasks:
    def __init__(self) -> None:
        # By job type: who was passed and has not gone since.
        self._passed: dict[str, dict[str, None]] = {}

    def owed(self, job_type: str) -> Iterable[str]:
        """Those of a type that were passed: they go before the next that is late."""
        return self._passed.get(job_type, ())

    def passed(self, job_type: str, better: Iterable[WaitingTask]) -> None:
        """One that was overdue goes before these."""
        ids = dict.fromkeys(task.task_id for task in better)
        if ids:
            self._passed.setdefault(job_type, {}).update(ids)

    def gone(self, job_type: str, task_id: str) -> None:
        """This one waits no more."""
        passed = self._passed.get(job_type)
        if passed is not None:
            passed.pop(task_id, None)
            if not passed:
                del self._passed[job_type]


class SkippedLines:
    """Lines left to others, and when to look at them again whatever happens."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self.first: float | None = None
        """When the next of them is to be looked at, or a little before."""

    def set(self, key: str, at: float) -> None:
        self._at[key] = at
        if self.first is None or at < self.first:
            self.first = at

    def add(self, keys: Iterable[str], at: float) -> None:
        """Those that are not to be looked at already."""
        known = self._at
        for key in [key for key in keys if key not in known]:
            self.set(key, at)

    def due(self, now: float) -> list[str]:
        """Those whose time has come; they are forgotten here."""
        if self.first is None or self.first > now:
            return []
        found = [key for key, at in self._at.items() if at <= now]
        for key in found:
            del self._at[key]
        self.first = min(self._at.values(), default=None)
        return found
