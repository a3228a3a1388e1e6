"""What happened and what is wrong, as answers show it: events, alerts, health."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from corral.core.insight.event import Event
from corral.core.insight.health import HealthProblem
from corral.wire.value import Known, PlainValue, Value


@dataclass(frozen=True, slots=True)
class EventInfo(PlainValue, Event):
    """Something that happened; the last three are of alerts alone."""

    data: dict[str, Any] = field(default_factory=dict)
    task_ids: list[str] = field(default_factory=list)


class EventList(Value, frozen=True, kw_only=True):
    """Some events; `next` is the `after` of the page that follows."""

    events: list[EventInfo]
    next: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertInfo(PlainValue, HealthProblem):
    """Something that is wrong, or was once `resolved_at` is there."""

    severity: str  # type: ignore[assignment]
    id: int
    raised_at: datetime | None = None
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None
    note: str | None = None
    resolved_at: datetime | None = None

    @property
    def status(self) -> str:
        """open, acknowledged or resolved."""
        if self.resolved_at is not None:
            return "resolved"
        return "acknowledged" if self.acknowledged_at is not None else "open"


class AlertList(Value, frozen=True, kw_only=True):
    """Newest first."""

    alerts: list[AlertInfo]
    total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReason(PlainValue, HealthProblem):
    """Why a cluster is not healthy; `value` is of the last look."""

    severity: str  # type: ignore[assignment]
    alert_id: int | None = None
    is_acknowledged: bool = False


class HealthRule(Value, frozen=True, kw_only=True):
    """`severity` at first, and what it may become; `at_once` without a wait."""

    rule: str
    looks_at: str = ""
    severity: str = ""
    worst: str = ""
    limit: float | None = None
    at_once: bool = False


class ClusterHealth(Value, frozen=True, kw_only=True):
    """`status` is healthy, degraded or critical."""

    status: str
    reasons: list[HealthReason] = []
    checked_at: Known[datetime] = None
    rules: list[HealthRule] = []


class LiveEvent(Value, frozen=True, kw_only=True):
    """Something that happened; docs/events.md says what `data` has for each `event`.

    After an event `reset` some may be missing: what was learned from events is to be
    loaded anew.
    """

    event: str
    timestamp: datetime
    seq: int
    data: dict[str, Any] = {}


class LivePage(Value, frozen=True, kw_only=True):
    """`next` is the `after` of the page that follows."""

    events: list[LiveEvent]
    next: int
