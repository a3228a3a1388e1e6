"""A machine of the cluster and a sample of how it is doing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from corral.core.nodes.labels import key_of


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
    reason: str = ""
    drain: bool = False
    since: datetime | None = None
    until: datetime | None = None
    by: str = ""


_HELD = {
    HoldSource.OPERATOR: "cordoned",
    HoldSource.WINDOW: "in a maintenance window",
    HoldSource.OWNER: "used by its owner",
}


def held_words(holds: Sequence[Hold]) -> str:
    """Why a node is held, in words."""
    return "; ".join(_words(hold) for hold in holds)


def _words(hold: Hold) -> str:
    is_drain = hold.source is HoldSource.OPERATOR and hold.drain
    words = "drained" if is_drain else _HELD[hold.source]
    if hold.until is not None:
        words += f" until {hold.until:%Y-%m-%d %H:%M:%S} UTC"
    return f"{words} ({hold.reason})" if hold.reason else words


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
class NodeRecord:
    """A machine. `labels` and `taints` are its agent's word, `set_*` an operator's.

    A taint is `key` or `key=value`; tasks that do not tolerate it stay away. What an
    operator says of a key counts instead of what the agent says of it: a label that
    is set to the empty string is taken away, and so is a taint set as `-key`. `hold`
    is an operator's; other holds come and go with their causes and are not stored.
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
        said = {key_of(taint.removeprefix("-")) for taint in self.set_taints}
        own = (taint for taint in self.taints if key_of(taint) not in said)
        added = (taint for taint in self.set_taints if not taint.startswith("-"))
        return frozenset((*own, *added))


@dataclass(frozen=True, slots=True)
class MachineReading:
    """What an agent reads of its machine."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(MachineReading):
    """One reading of a machine, as it is kept.

    Rates are bytes per second since the reading before; None where that is unknown.
    Of its GPUs those are summed up that it offers: mean use, memory together.
    """

    node_id: str
    at: datetime
    network_rx_rate: float | None = None
    network_tx_rate: float | None = None
    gpu_count: int = 0
    gpu_utilization_percent: float | None = None
    gpu_memory_used_mb: float | None = None
    gpu_memory_total_mb: float | None = None
