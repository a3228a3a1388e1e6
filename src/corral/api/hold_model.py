"""The JSON shapes of what operators say of nodes: holds, windows, labels, taints."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class HoldOut(Struct):
    """Why a node gets nothing new; `source` is operator, window or owner."""

    source: str
    reason: str
    drain: bool
    since: datetime | None
    until: datetime | None
    by: str


class WindowOut(Struct):
    """A time of maintenance; `next_at` is when it begins next."""

    name: str
    duration: float
    cron: str | None
    timezone: str
    starts_at: datetime | None
    reason: str
    drain: bool
    next_at: datetime | None


class HoldIn(Struct, forbid_unknown_fields=True):
    reason: str = ""
    until: str | float | None = None


class NodeChange(Struct, forbid_unknown_fields=True):
    labels: dict[str, str | None] = {}
    taints: dict[str, str | None] = {}


class WindowIn(Struct, forbid_unknown_fields=True):
    name: str
    duration: float
    cron: str | None = None
    timezone: str = "UTC"
    starts_at: str | float | None = None
    reason: str = ""
    drain: bool = True


class WindowListOut(Struct):
    windows: list[WindowOut]


class NodeGone(Struct):
    """`status` is leaving while its agent still stops, then left."""

    message: str
    node_id: str
    status: str
