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


@dataclass(frozen=True, slots=True)
class Node:
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
