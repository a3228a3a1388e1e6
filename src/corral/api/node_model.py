"""The JSON shapes between agents, workers and the manager (docs/design/wire.md)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

from corral.core.nodes.breaker import BreakerReport
from corral.core.nodes.gpu import Gpu


class JoinIn(Struct):
    hostname: str
    name: str | None = None


class JoinOut(Struct):
    node_id: str
    key: str


class DeclaredWorker(Struct):
    name: str
    worker_class: str
    job_types: list[str] = []
    params: dict[str, Any] = {}
    concurrency: int = 1
    url: str | None = None
    gpus: str = ""


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


class WorkerRegisterIn(Struct):
    pid: int
    epoch: int


class WorkerRegisterOut(Struct):
    incarnation: str
    secret: str
    queue: str
    concurrency: int
    job_types: list[str]
    token: str


class ErrorIn(Struct):
    kind: str
    message: str
    traceback: str | None = None
    is_final: bool = False


class OutcomeIn(Struct):
    task_id: str
    attempt: int
    kind: str
    result: Raw | UnsetType = UNSET
    error: ErrorIn | None = None
    started_at: float | None = None
    duration_s: float = 0.0
    load_s: float = 0.0
    memory_mb: float | None = None


class LogIn(Struct):
    task_id: str
    attempt: int
    seq: int
    lines: list[tuple[float, str, str]]


class OutputIn(Struct):
    task_id: str
    attempt: int
    first: int
    values: list[Raw]


class HeldIn(Struct):
    name: str
    size_mb: float | None = None
    load_s: float | None = None
    loaded_at: float = 0.0
    copies: int = 1
    device: str | None = None
    precision: str | None = None
    layers: dict[str, int] = {}
    edition: str = ""
    peaks: dict[int, float] = {}


class WornIn(Struct):
    """Memory of a model that did not come back when it went; MB."""

    model: str
    left_mb: float
    size_mb: float


class ModelsIn(Struct):
    number: int
    held: list[HeldIn] = []
    sizes: dict[str, float] = {}
    restarts: int = 0
    worn: WornIn | None = None


class ReportIn(Struct):
    incarnation: str
    report_id: str
    outcomes: list[OutcomeIn] = []
    started: list[tuple[str, int, float]] = []
    progress: list[tuple[str, int, float, str]] = []
    logs: list[LogIn] = []
    wants_order: bool = False
    state: str | None = None
    error: str | None = None
    models: ModelsIn | None = None
    output: list[OutputIn] = []
