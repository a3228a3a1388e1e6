"""Events as values: history, and alerts.

An alert is an event that stays open until it is resolved; its row says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One row of history; `task_ids` has every task one statement touched."""

    event_type: str
    title: str = ""
    severity: str = "info"
    source_node_id: str | None = None
    description: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    task_ids: Sequence[str] = ()
    at: datetime | None = None
    seq: int = 0
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None
    resolved_at: datetime | None = None


OF_TASKS = "tasks_"
"""What the types of events begin with that tell of tasks."""
ALERT = "alert"
"""The type of events that stay open until they are resolved."""


@dataclass(frozen=True, slots=True)
class EventQuery:
    """Which events; empty for all. Those of a task are found while it is kept."""

    task_id: str | None = None
    event_types: tuple[str, ...] = ()
    severities: tuple[str, ...] = ()
    node_id: str | None = None
    is_open: bool | None = None
    with_tasks: bool = True
    """Also those that tell of tasks, of which there are far more than of all else."""


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events, oldest first; everything of them up to `next` is there or before."""

    events: tuple[Event, ...]
    next: int
