"""What a worker says about an attempt."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from corral.core.task import TaskError


class OutcomeKind(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    LOST = "lost"
    """The runner or worker died while this task was running: counts as a loss."""
    RETURNED = "returned"
    """Never started, or stopped through no fault of its own: goes back uncharged."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended. `result` is JSON text.

    A final failure is not tried again, whatever tries are left. `load_s` is what its
    model took to load, which is no part of `duration_s`.
    """

    task_id: str
    attempt: int
    kind: OutcomeKind
    result: str | None = None
    error: TaskError | None = None
    started_at: datetime | None = None
    duration_s: float = 0.0
    is_final: bool = False
    load_s: float = 0.0
