"""How an attempt ended, and what becomes of its task: done, again, or dead letter."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from corral.core.backoff import Backoff
from corral.core.tasks.job_type import OWN_TYPES
from corral.core.tasks.task import State, Task, TaskError, advance
from corral.errors import IllegalTransition

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


@dataclass(frozen=True, slots=True)
class RetryPolicy(Backoff):
    """Pauses between tries, and the limit of workers lost under one task."""

    max_losses: int = 3


@dataclass(frozen=True, slots=True)
class Settlement:
    """The guarded write that ends an attempt.

    It is applied only while the row still has `attempt` and is not terminal.
    A `state` of queued means: again, as attempt + 1, not before `run_after`.
    """

    task_id: str
    attempt: int
    state: State
    outcome: OutcomeKind
    tries: int
    losses: int
    finished_at: datetime
    run_after: datetime | None = None
    started_at: datetime | None = None
    result: str | None = None
    error: TaskError | None = None
    dead_letter: str | None = None
    duration_s: float = 0.0
    load_s: float = 0.0


_TERMINAL_OF = {
    OutcomeKind.COMPLETED: State.COMPLETED,
    OutcomeKind.FAILED: State.FAILED,
    OutcomeKind.TIMED_OUT: State.TIMED_OUT,
    OutcomeKind.CANCELLED: State.CANCELLED,
}


def settle(
    task: Task, outcome: Outcome, now: datetime, policy: RetryPolicy, luck: float
) -> Settlement:
    """Decide what `outcome` makes of `task`.

    Raises:
        IllegalTransition: it completed what no worker has.
    """
    if task.state is State.QUEUED and outcome.kind is OutcomeKind.COMPLETED:
        # The table allows it for the sake of results of other tasks alone.
        raise IllegalTransition(
            f"task {task.id} waits: no worker has it that could complete it"
        )
    tries, losses = task.tries, task.losses
    state = _TERMINAL_OF.get(outcome.kind, State.QUEUED)
    run_after: datetime | None = None
    dead: str | None = None
    error = outcome.error
    if outcome.kind in (OutcomeKind.FAILED, OutcomeKind.TIMED_OUT):
        tries += 1
        if tries <= task.spec.retries and not outcome.is_final:
            state = State.QUEUED
            run_after = now + timedelta(seconds=policy.delay_s(tries, luck))
        else:
            dead = None if task.spec.job_type in OWN_TYPES else str(outcome.kind)
    elif outcome.kind is OutcomeKind.LOST:
        losses += 1
        if task.spec.job_type in OWN_TYPES:
            state = State.FAILED
        elif losses >= policy.max_losses:
            state, dead = State.FAILED, "poison"
            error = TaskError(
                "poison", f"its worker died under it {losses} times; {_say(error)}"
            )
        else:
            run_after = now + timedelta(seconds=policy.delay_s(losses, luck))
    return Settlement(
        task_id=task.id,
        attempt=outcome.attempt,
        state=advance(task.state, state) if state is not task.state else state,
        outcome=outcome.kind,
        tries=tries,
        losses=losses,
        finished_at=now,
        run_after=run_after,
        started_at=outcome.started_at,
        result=outcome.result,
        error=error,
        dead_letter=dead,
        duration_s=outcome.duration_s,
        load_s=outcome.load_s,
    )


def _say(error: TaskError | None) -> str:
    return f"last: {error.message}" if error else "no message was left"
