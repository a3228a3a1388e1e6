"""Nodes as answers show them: holds, windows of maintenance, cards, breakers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from corral.wire.value import Value


class HoldInfo(Value, frozen=True, kw_only=True):
    """Why a node gets nothing new; `source` is operator, window or owner."""

    source: str
    reason: str = ""
    drain: bool = False
    since: datetime | None = None
    until: datetime | None = None
    by: str = ""


class WindowInfo(Value, frozen=True, kw_only=True):
    """A time of maintenance; `duration` is seconds, `next_at` when it begins next."""

    name: str
    duration: float
    cron: str | None = None
    timezone: str = "UTC"
    starts_at: datetime | None = None
    reason: str = ""
    drain: bool = True
    next_at: datetime | None = None


class NodeInfo(Value, frozen=True, kw_only=True):
    node_id: str
    status: str
    hostname: str = ""
    node_type: str = "worker"
    address: str | None = None
    version: str | None = None
    labels: dict[str, str] = {}
    capabilities: dict[str, Any] = {}
    joined_at: datetime | None = None
    last_heartbeat: datetime | None = None
    workers: int = 0
    cpu_percent: float | None = None
    memory_percent: float | None = None
    disk_percent: float | None = None
    load_1m: float | None = None
    gpus: list[Any] = []
    """Its cards, as `core.nodes.gpu.Gpu` has them."""
    scheduling: str = "open"
    holds: list[HoldInfo] = []
    taints: list[str] = []
    running_tasks: int = 0
    windows: list[WindowInfo] = []
    breakers: list[Any] = []
    """As `core.nodes.breaker.BreakerReport` has them."""
    clock_skew_s: float | None = None
    version_skew: str | None = None
    shares_models: list[str] | None = None
    """Models whose files it gives to other nodes; None where it gives none."""


class BreakersReset(Value, frozen=True, kw_only=True):
    """`reset` are the breakers, `workers` those that are started because of it."""

    node_id: str
    reset: list[str] = []
    workers: list[str] = []


class NodeList(Value, frozen=True, kw_only=True):
    nodes: list[NodeInfo]
    total: int = 0


class WindowList(Value, frozen=True, kw_only=True):
    windows: list[WindowInfo]


class NodeGone(Value, frozen=True, kw_only=True):
    """`status` is leaving while its agent still stops, then left."""

    node_id: str = ""
    status: str
    message: str = ""
