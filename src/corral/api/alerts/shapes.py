"""The JSON shapes of events, alerts and the cluster's health."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class AlertOut(Struct):
    id: int
    rule: str
    subject: str
    severity: str
    title: str
    value: float | None
    limit: float | None
    node_id: str | None
    raised_at: datetime | None
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    note: str | None
    resolved_at: datetime | None


class AlertListOut(Struct):
    """Newest first."""

    alerts: list[AlertOut]
    total: int


class AcknowledgeIn(Struct, forbid_unknown_fields=True):
    note: str = ""


class ReasonOut(Struct):
    """Something that is wrong now; `value` is of the last look."""

    rule: str
    severity: str
    subject: str
    title: str
    value: float | None
    limit: float | None
    node_id: str | None
    alert_id: int | None
    is_acknowledged: bool


class RuleOut(Struct):
    """`severity` at first, and what it may become; `at_once` without a wait."""

    rule: str
    looks_at: str
    severity: str
    worst: str
    limit: float | None
    at_once: bool


class ClusterHealthOut(Struct):
    status: str
    reasons: list[ReasonOut]
    checked_at: datetime
    rules: list[RuleOut]
