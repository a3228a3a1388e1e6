"""What many want to hear: told where it happens, listened to by those who care.

Told on the loop, in the order of subscription, and never awaited: a listener that has
more to do starts it and returns. Who listens to what is said here, in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVarTuple

from corral.core.access.key import Key
from corral.core.models.model import HeldModel
from corral.core.tasks.outcome import Settlement
from corral.core.tasks.task import State, Task
from corral.manager.cluster.held_models import ReportedModels
from corral.manager.cluster.links import WorkerLink
from corral.store.base import Event, Inserted, Placement

Ts = TypeVarTuple("Ts")


class Signal(Generic[*Ts]):
    """One thing that happens; `listen` when features are made, `tell` when it does."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: list[Callable[[*Ts], None]] = []

    def listen(self, listener: Callable[[*Ts], None]) -> None:
        self._listeners.append(listener)

    def tell(self, *news: *Ts) -> None:
        for listener in self._listeners:
            listener(*news)


@dataclass(frozen=True, slots=True)
class TasksInserted:
    tasks: Sequence[Task]
    inserted: Inserted


@dataclass(frozen=True, slots=True)
class TasksPlaced:
    """`given` has the tasks that were placed, with their payloads."""

    placements: Sequence[Placement]
    at: datetime
    given: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TasksStarted:
    """(id, attempt, when) of each; `changed` are those that had not been."""

    started: Sequence[tuple[str, int, datetime]]
    changed: set[str]


@dataclass(frozen=True, slots=True)
class TasksSettled:
    """Of those not in `applied` the store had something newer."""

    settlements: Sequence[Settlement]
    applied: set[str]


@dataclass(frozen=True, slots=True)
class TaskRequeued:
    task: Task


@dataclass(frozen=True, slots=True)
class EventsAdded:
    events: Sequence[Event]


@dataclass(frozen=True, slots=True)
class NameChanged:
    """A job type, worker type, schedule or model of the catalogue was saved, or is no
    more; `event` is what its change is called.
    """

    event: str
    name: str
    is_removed: bool = False


Written = (
    TasksInserted
    | TasksPlaced
    | TasksStarted
    | TasksSettled
    | TaskRequeued
    | EventsAdded
    | NameChanged
)


@dataclass(frozen=True, slots=True)
class Signals:
    """Every signal of the manager, and who listens to it, in that order."""

    accepted: Signal[Sequence[Task]] = field(default_factory=Signal)
    """Tasks were stored. Counters, traces."""
    settled: Signal[Sequence[tuple[Task, Settlement]]] = field(default_factory=Signal)
    """Attempts ended, each with its task as it was. Counters, traces, the result cache,
    equal tasks, gangs."""
    ended: Signal[Sequence[tuple[Task, State]]] = field(default_factory=Signal)
    """Tasks left memory, however we learned of their end; told after `settled`, so that
    a result is kept before others ask for it. Equal tasks, webhooks."""
    unsent: Signal[str] = field(default_factory=Signal)
    """A member of a gang was planned, but not handed over. Gangs."""
    models_reported: Signal[WorkerLink, ReportedModels] = field(default_factory=Signal)
    """A worker said what it holds. Models."""
    model_loaded: Signal[WorkerLink, HeldModel] = field(default_factory=Signal)
    """A worker loaded a model since it last spoke. The catalogue."""
    model_held: Signal[WorkerLink, HeldModel] = field(default_factory=Signal)
    """A worker has a model in memory. The catalogue."""
    node_beat: Signal[str, bool] = field(default_factory=Signal)
    """A node beat, and whether it brought a reading of its cards. Models."""
    key_revoked: Signal[Key] = field(default_factory=Signal)
    """A key was revoked. A node's way to the engine."""
    events_due: Signal[()] = field(default_factory=lambda: Signal[()]())
    """Events may have been written. Who follows the history."""
    written: Signal[Written] = field(default_factory=Signal)
    """A write is through, and memory has not followed yet. Live events."""

    @contextmanager
    def writing(self) -> Iterator[Callable[[Written], None]]:
        """Around a write that leaves events behind; call what it gives once through."""
        try:
            yield self.written.tell
        finally:
            # Also when the answer was lost: what was asked for may be written.
            self.events_due.tell()
