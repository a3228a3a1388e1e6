"""Events as values, and the part of the seam that keeps them: history and alerts.

An alert is an event that stays open until it is resolved; its row says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Event:
    """One row of history; `task_ids` has every task one statement touched."""

    event_type: str
    title: str
    severity: str = "info"
    source_node_id: str | None = None
    description: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    task_ids: tuple[str, ...] = ()
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


class EventStore(Protocol):
    """What a store does with events."""

    async def add_events(self, events: Sequence[Event]) -> None: ...

    async def events(self, after_seq: int = 0, limit: int = 100) -> Sequence[Event]:
        """Oldest first when `after_seq` > 0, else the newest `limit`, oldest first."""

    async def event_page(
        self, where: EventQuery, after_seq: int = 0, limit: int = 100
    ) -> EventPage:
        """The same of some events, with the place to go on from without a loss."""

    async def alerts(self, where: EventQuery, limit: int = 1000) -> Sequence[Event]:
        """Alerts, newest first."""

    async def acknowledge_alert(
        self, seq: int, by: str, at: datetime, note: str = ""
    ) -> Event | None:
        """Note that somebody has seen an alert; the first one to say so stays.

        The alert as it is then, None when there is none; a resolved one is left alone.
        """

    async def worsen_alert(
        self, seq: int, severity: str, title: str, data: Mapping[str, Any]
    ) -> None:
        """An open alert is worse than it was; what `data` does not name stays."""

    async def resolve_alerts(self, seqs: Sequence[int], at: datetime) -> None:
        """The cause of these alerts is gone; those resolved already are left alone."""
