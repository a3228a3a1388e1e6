"""A schedule: a task that is submitted again and again, at the times of a cron line.

Pure: when those times are is not known here, only which of those due are run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from corral.core.tasks.task import TaskSpec

GRACE = timedelta(seconds=60)
"""A run this late is late; one later than this was missed."""
MOST_MISSED = 1000
"""How many missed runs are made up for at most: the latest ones."""


class MissedPolicy(StrEnum):
    """What becomes of runs that came due while no manager was up."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class OverlapPolicy(StrEnum):
    """What becomes of a run that comes due while the one before still lives."""

    ALLOW = "allow"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class ScheduleTerms:
    """When a schedule runs, and how its runs went.

    `next_at` is None while it is paused. `note` says what became of the last run
    that was left out or refused.
    """

    name: str
    cron: str
    timezone: str = "UTC"
    missed: MissedPolicy = MissedPolicy.ONCE
    overlap: OverlapPolicy = OverlapPolicy.ALLOW
    next_at: datetime | None = None
    last_at: datetime | None = None
    last_task_id: str | None = None
    note: str | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(ScheduleTerms):
    """`task` is what is submitted; its id, key and times are given when it is."""

    task: TaskSpec
    deadline_s: float | None = None

    @property
    def is_paused(self) -> bool:
        return self.next_at is None

    def to_run(self, due: Sequence[datetime], now: datetime) -> tuple[datetime, ...]:
        """Which of the times that are due (oldest first) are run now."""
        if not due:
            return ()
        last = due[-1]
        if self.missed is MissedPolicy.ALL and self.overlap is OverlapPolicy.ALLOW:
            return tuple(due)
        is_on_time = now - last <= GRACE
        return (last,) if is_on_time or self.missed is not MissedPolicy.SKIP else ()

    def spec(self, task_id: str, at: datetime, now: datetime) -> TaskSpec:
        """The task of the run planned for `at`.

        Its idempotency key follows from the schedule and that time alone: however
        often a manager dies half way and begins again, the run is one task.
        """
        return self._made(task_id, moment_text(at), moment_text(at), now)

    def extra_spec(self, task_id: str, key: str, now: datetime) -> TaskSpec:
        """The task of a run that was asked for beside the plan."""
        return self._made(task_id, f"now:{key}", "now", now)

    def _made(self, task_id: str, key: str, at: str, now: datetime) -> TaskSpec:
        ends = None
        if self.deadline_s is not None:
            ends = now + timedelta(seconds=self.deadline_s)
        return replace(
            self.task,
            id=task_id,
            idempotency_key=f"schedule:{self.name}:{key}",
            options=replace(self.task.options, schedule=self.name, scheduled_at=at),
            deadline=ends,
        )


def moment_text(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")
