"""The task: its states, the one table of legal moves, and the values around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from corral.core.tasks.options import NO_OPTIONS, SpecOptions
from corral.errors import Forbidden, IllegalTransition


class State(StrEnum):
    QUEUED = "queued"
    ASSIGNED = "assigned"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    ERROR = "error"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


TERMINAL = frozenset(
    {State.COMPLETED, State.FAILED, State.ERROR, State.CANCELLED, State.TIMED_OUT}
)
LIVE = frozenset(State) - TERMINAL

# The only edge out of a terminal state is the explicit requeue.
TRANSITIONS: Mapping[State, frozenset[State]] = MappingProxyType(
    {
        State.QUEUED: frozenset(
            {
                State.ASSIGNED,
                # With the result of another task that asked the same.
                State.COMPLETED,
                State.FAILED,
                State.ERROR,
                State.CANCELLED,
                State.TIMED_OUT,
            }
        ),
        State.ASSIGNED: frozenset({State.RUNNING, State.QUEUED}) | TERMINAL,
        State.RUNNING: frozenset({State.QUEUED}) | TERMINAL,
        **{state: frozenset({State.QUEUED}) for state in TERMINAL},
    }
)


def advance(old: State, new: State) -> State:
    """The one place where a state changes.

    Raises:
        IllegalTransition: when the table has no such edge.
    """
    if new not in TRANSITIONS[old]:
        raise IllegalTransition(
            f"a task cannot go from {old} to {new}", old=str(old), new=str(new)
        )
    return new


class Overlap(StrEnum):
    """May an attempt still run somewhere while the next one starts?"""

    ALLOWED = "allowed"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class TaskError:
    """Why an attempt did not complete; `kind` is a stable word."""

    kind: str
    message: str
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """What a user asked for. `payload` is JSON text, never decoded by the manager."""

    id: str
    job_type: str
    payload: str
    priority: int = 0
    model: str | None = None
    timeout_s: float | None = None
    retries: int = 0
    run_after: datetime | None = None
    deadline: datetime | None = None
    idempotency_key: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    depends_on: tuple[str, ...] = ()
    overlap: Overlap = Overlap.ALLOWED
    owner: str = ""
    options: SpecOptions = NO_OPTIONS


@dataclass(frozen=True, slots=True)
class Task:
    """A task as the store keeps it; (id, attempt) is the fencing token.

    `tries` counts attempts in which user code failed, `losses` those in which the
    worker died under it, `run` rises with every explicit requeue.
    """

    spec: TaskSpec
    state: State
    created_at: datetime
    seq: int = 0
    run: int = 1
    attempt: int = 1
    tries: int = 0
    losses: int = 0
    worker_id: str | None = None
    incarnation: str | None = None
    node_id: str | None = None
    assigned_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    result: str | None = None
    error: TaskError | None = None
    dead_letter: str | None = None

    def given_to(
        self, worker_id: str, incarnation: str | None, node_id: str, at: datetime
    ) -> Task:
        """This attempt with a worker. Written out: `replace` costs four times as much,
        and every task passes here.
        """
        state = advance(self.state, State.ASSIGNED)
        return Task(
            self.spec,
            state,
            self.created_at,
            self.seq,
            self.run,
            self.attempt,
            self.tries,
            self.losses,
            worker_id,
            incarnation,
            node_id,
            at,
        )

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL


@dataclass(frozen=True, slots=True)
class Attempt:
    """One ended try that did not complete; the completed one is the task itself."""

    task_id: str
    run: int
    attempt: int
    outcome: str
    worker_id: str | None
    node_id: str | None
    started_at: datetime | None
    finished_at: datetime
    error: TaskError | None


def check_owner(spec: TaskSpec, only_of: str | None) -> None:
    """Raises Forbidden when it is somebody else's; None may touch everybody's."""
    if only_of is not None and spec.owner != only_of:
        raise Forbidden(
            f"task {spec.id} is not yours: a key that may operate can do that",
            task_id=spec.id,
        )


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks; what is not said does not matter."""

    states: tuple[State, ...] = ()
    job_type: str | None = None
    worker_id: str | None = None
    owner: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    dead_letter: bool | None = None
    model: str | None = None
    request_id: str | None = None
    schedule: str | None = None
    text: str | None = None
    """In its id, type, model, worker, owner or error, however it is written."""
