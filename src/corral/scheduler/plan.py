"""What comes out of the scheduler: who gets which tasks, and why others wait."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from corral.scheduler.events import WaitingTask


@dataclass(frozen=True, slots=True)
class PlannedOrder:
    """These waiting attempts go to this worker in one message.

    Before them it drops the models of `unload` and loads `load`, if they say so.
    """

    worker_id: str
    tasks: tuple[WaitingTask, ...]
    load: str | None = None
    unload: tuple[str, ...] = ()
    cards: tuple[str, ...] = ()
    """What its one task was given of its node's GPUs, by id."""
    lead: str = ""
    """The worker that the first member of its gang goes to."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Take this attempt from its worker, uncharged: a critical task needs the room."""

    worker_id: str
    task_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Plan:
    """`next_wake` is when time alone will change the plan."""

    orders: tuple[PlannedOrder, ...] = ()
    expired: tuple[WaitingTask, ...] = ()
    next_wake: float | None = None
    preempt: tuple[Stop, ...] = ()


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a task is not running yet."""

    reason: str
    message: str
    details: dict[str, Any] = field(default_factory=dict)
