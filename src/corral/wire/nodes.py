"""Nodes as operators see them and speak of them: holds, windows, cards, breakers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from corral.core.nodes.node import Hold
from corral.wire.value import PlainValue, Value


@dataclass(frozen=True, slots=True)
class HoldInfo(PlainValue, Hold):
    """Why a node gets nothing new; of a newer manager `source` may be another word."""

    source: str  # type: ignore[assignment]


class NodeWindow(Value, frozen=True, kw_only=True):
    """A time of maintenance; `duration` is seconds."""

    name: str
    duration: float
    cron: str | None = None
    timezone: str = "UTC"
    reason: str = ""
    drain: bool = True


class WindowInfo(NodeWindow, frozen=True, kw_only=True):
    """`next_at` is when it begins next."""

    starts_at: datetime | None = None
    next_at: datetime | None = None


class WindowIn(NodeWindow, frozen=True, kw_only=True, forbid_unknown_fields=True):
    starts_at: str | float | None = None


class HoldIn(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: str = ""
    until: str | float | None = None


class NodeChange(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """None takes a label or a taint away."""

    labels: dict[str, str | None] = {}
    taints: dict[str, str | None] = {}


class BreakerResetIn(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Without a key: all that workers wait for."""

    key: str | None = None


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
