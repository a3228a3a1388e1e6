"""A machine of the cluster and a sample of how it is doing."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class NodeState(StrEnum):
    ONLINE = "online"
    SUSPECT = "suspect"
    LOST = "offline"
    LEFT = "left"


class HoldSource(StrEnum):
    """Who keeps a node from getting new work."""

    OPERATOR = "operator"
    WINDOW = "window"
    OWNER = "owner"


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a node is given nothing new; with `drain` its workers stop when idle."""

    source: HoldSource
    reason: str
    drain: bool = False
    since: datetime | None = None
    until: datetime | None = None
    by: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """A time of maintenance: once from `starts_at`, or at each time of `cron`."""

    name: str
    duration_s: float
    cron: str | None = None
    timezone: str = "UTC"
    starts_at: datetime | None = None
    reason: str = ""
    drain: bool = True


@dataclass(frozen=True, slots=True)
class Node:
    """A machine. `labels` and `taints` are its agent's word, `set_*` an operator's.

    A taint is `key` or `key=value`; tasks that do not tolerate it stay away. A label
    that an operator set to the empty string is taken away. `hold` is an operator's;
    other holds come and go with their causes and are not stored.
    """

    id: str
    hostname: str
    node_type: str = "worker"
    state: NodeState = NodeState.ONLINE
    address: str | None = None
    version: str | None = None
    epoch: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    capabilities: dict[str, Any] = field(default_factory=dict)
    joined_at: datetime | None = None
    left_at: datetime | None = None
    last_heartbeat: datetime | None = None
    set_labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    set_taints: tuple[str, ...] = ()
    hold: Hold | None = None
    windows: tuple[Window, ...] = ()

    @property
    def all_labels(self) -> dict[str, str]:
        merged = {**self.labels, **self.set_labels}
        return {name: value for name, value in merged.items() if value}

    @property
    def all_taints(self) -> frozenset[str]:
        return frozenset((*self.taints, *self.set_taints))


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of a machine."""

    node_id: str
    at: datetime
    cpu_count: int
    cpu_percent: float
    memory_total_mb: float
    memory_used_mb: float
    disk_total_gb: float
    disk_used_gb: float
    network_rx_bytes: int
    network_tx_bytes: int
    load_1m: float
    load_5m: float
    load_15m: float
