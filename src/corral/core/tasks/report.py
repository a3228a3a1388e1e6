"""What a worker says about an attempt."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from corral.core.tasks.task import TaskError

OUT_OF_MEMORY = "out_of_memory"
"""The kind of an error that a card with more memory may mend."""


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
    model took to load, which is no part of `duration_s`. `memory_mb` is the most GPU
    memory it took beside its model, where the worker could tell.
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
    memory_mb: float | None = None


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Lines an attempt printed. `lines` is JSON text: [[epoch_s, stream, text]...]."""

    task_id: str
    attempt: int
    seq: int
    lines: str
