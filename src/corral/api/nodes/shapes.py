"""The JSON shapes of nodes (docs/design/wire.md).

First what operators say and see of them: holds, windows, labels, taints. Then what
agents and the manager tell each other.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from corral.api.workers.shapes import DeclaredWorker
from corral.core.nodes.breaker import BreakerReport
from corral.core.nodes.gpu import Gpu
from corral.wire.nodes import NodeInfo, NodeList


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


class NodeOut(NodeInfo, frozen=True, kw_only=True):
    """A node, with its cards and breakers described as well."""

    gpus: list[Gpu]
    breakers: list[BreakerReport]


class BreakerResetIn(Struct, forbid_unknown_fields=True):
    key: str | None = None


class NodeListOut(NodeList, frozen=True, kw_only=True):
    nodes: list[NodeOut]  # type: ignore[assignment]


class JoinIn(Struct):
    hostname: str
    name: str | None = None


class JoinOut(Struct):
    node_id: str
    key: str


class RegisterIn(Struct):
    hostname: str
    version: str | None = None
    address: str | None = None
    capabilities: dict[str, Any] = {}
    labels: dict[str, str] = {}
    taints: list[str] = []
    workers: list[DeclaredWorker] = []
    clock: float | None = None
    node_type: str = "worker"
    machine: str | None = None


class DesiredWorker(Struct):
    worker_id: str
    name: str
    worker_class: str
    job_types: list[str]
    params: dict[str, Any]
    concurrency: int
    environment: dict[str, Any] | None = None
    entry: str | None = None
    generation: int = 0
    url: str | None = None
    gpus: str = ""
    worker_type: str | None = None


class GpuReleaseOut(Struct):
    """The quarantine of a card that is to end, named by when it began."""

    gpu_id: str
    since: datetime


class DesiredOut(Struct):
    version: int
    workers: list[DesiredWorker]
    leave: bool = False
    gpu_releases: list[GpuReleaseOut] = []
    forget: bool = False


class EngineOut(Struct):
    direct_url: str | None
    username: str | None
    password: str | None
    database: int
    prefix: str = ""


class LimitsOut(Struct):
    no_overlap_kill_s: float
    overrun_s: float
    model_load_s: float


class RegisterOut(Struct):
    epoch: int
    desired: DesiredOut
    beat_s: float
    fence_after_s: float
    sample_s: float
    engine: EngineOut
    limits: LimitsOut


class WorkerBeatIn(Struct):
    worker_id: str
    state: str
    incarnation: str | None = None
    pid: int | None = None
    error: str | None = None
    restarts: int = 0
    age_s: float = 0.0
    memory_mb: float | None = None
    facts: dict[str, Any] = {}
    breaker: str | None = None
    held: list[tuple[str, int]] = []


class SampleIn(Struct):
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


class OwnerIn(Struct):
    active: bool
    reason: str = ""
    drain: bool = False


class PeerIn(Struct):
    """Where a node gives model files, and of which models: name and mark."""

    url: str
    secret: str
    models: dict[str, str] = {}


class BeatIn(Struct):
    epoch: int
    seq: int = 0
    clock: float | None = None
    owner: OwnerIn | None = None
    peer: PeerIn | None = None
    workers: list[WorkerBeatIn] = []
    sample: SampleIn | None = None
    gpus: list[Gpu] | None = None
    breakers: list[BreakerReport] = []


class BeatOut(Struct):
    desired_version: int
    drop: list[tuple[str, int]]
