"""The JSON shapes of requests and answers (docs/design/wire.md), as msgspec structs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

from corral.api.estimate_model import EstimateOut
from corral.api.hold_model import HoldOut, WindowOut
from corral.api.shelf_model import LoadedModel
from corral.core.nodes.breaker import BreakerReport
from corral.core.nodes.gpu import Gpu


class TaskIn(Struct, forbid_unknown_fields=True):
    task_type: str | None = None
    job_type: str | None = None
    parameters: Raw | UnsetType = UNSET
    payload: Raw | UnsetType = UNSET
    task_id: str | None = None
    model_name: str | None = None
    priority: int | str = 0
    timeout: float | None = None
    retries: int = 0
    run_after: str | float | None = None
    deadline: str | float | None = None
    idempotency_key: str | None = None
    labels: dict[str, str] = {}
    depends_on: list[str] = []
    overlap: str = "allowed"
    notify: str | list[str] = []
    node_labels: dict[str, str] = {}
    tolerates: list[str] = []
    group: str | None = None
    group_limit: int | None = None
    preemptible: bool = False
    resources: dict[str, Any] = {}
    gang: str | None = None
    gang_rank: int | None = None
    gang_size: int | None = None
    no_cache: bool = False
    profile: str | None = None


class BatchIn(Struct, forbid_unknown_fields=True):
    tasks: list[Raw]


class CollectIn(Struct, forbid_unknown_fields=True):
    task_ids: list[str]
    wait: float = 0.0


class ErrorOut(Struct, omit_defaults=True):
    kind: str
    message: str
    traceback: str | None = None


class StartOut(Struct):
    """When a task should start; four of five such tasks do from `low` to `high`."""

    at: datetime
    low: datetime
    high: datetime
    in_s: float


class TaskAccepted(Struct, omit_defaults=True):
    task_id: str
    status: str
    estimated_wait_time: float | None
    assigned_worker: str | None
    created_at: datetime
    estimated_duration: float | None = None
    estimated_start: StartOut | None = None
    cached_from: str | None = None


class Refusal(Struct):
    index: int
    code: str
    message: str


class BatchOut(Struct):
    task_ids: list[str | None]
    errors: list[Refusal]
    accepted: int
    refused: int


class TaskBrief(Struct):
    task_id: str
    task_type: str
    status: str
    priority: int
    attempt: int
    worker_id: str | None
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    duration: float | None
    result: Raw | None
    error: ErrorOut | None
    labels: dict[str, str]
    model_name: str | None


class AttemptOut(Struct):
    attempt: int
    run: int
    outcome: str
    worker_id: str | None
    node_id: str | None
    started_at: datetime | None
    finished_at: datetime
    error: ErrorOut | None


class WaitingOut(Struct):
    reason: str
    message: str
    details: dict[str, Any]


class ProgressOut(Struct):
    fraction: float
    message: str


class TaskOut(TaskBrief, kw_only=True):
    state: str
    parameters: Raw | None
    assigned_at: datetime | None
    timeout: float | None
    retries: int
    tries: int
    losses: int
    run: int
    run_after: datetime | None
    deadline: datetime | None
    idempotency_key: str | None
    depends_on: list[str]
    notify: list[str]
    node_labels: dict[str, str]
    tolerates: list[str]
    group: str | None
    group_limit: int | None
    preemptible: bool
    resources: dict[str, Any]
    gang: str | None
    gang_rank: int | None
    gang_size: int | None
    node_id: str | None
    assigned_worker: str | None
    progress: ProgressOut | None
    waiting: WaitingOut | None
    owner: str
    estimated_duration: float | None
    estimate: EstimateOut | None
    estimated_start: StartOut | None
    dead_letter: str | None
    cached_from: str | None
    request_id: str | None
    attempts: list[AttemptOut]


class CollectOut(Struct):
    tasks: list[TaskBrief]
    pending: list[str]
    unknown: list[str]


class TaskListOut(Struct):
    tasks: list[TaskBrief]
    total: int
    limit: int
    offset: int
    next_cursor: str | None


class TaskEnded(Struct):
    message: str
    task_id: str
    status: str


class LogLine(Struct):
    attempt: int
    at: float
    stream: str
    text: str


class LogsOut(Struct):
    lines: list[LogLine]
    cursor: str
    done: bool
    status: str
    progress: ProgressOut | None = None


class WorkerIn(Struct, forbid_unknown_fields=True):
    worker_class: str
    name: str | None = None
    job_types: list[str] = []
    params: dict[str, Any] = {}
    concurrency: int = 1
    node_id: str | None = None
    count: int = 1
    gpus: int | str = ""


class WorkerOut(Struct):
    worker_id: str
    name: str
    node_id: str
    status: str
    state: str
    worker_class: str
    job_types: list[str]
    concurrency: int
    current_tasks: int
    loaded_models: list[str]
    gpu_info: list[dict[str, Any]]
    memory_usage: dict[str, float]
    performance_metrics: dict[str, float]
    error: str | None
    pid: int | None
    restarts: int
    last_heartbeat: datetime | None
    worker_type: str | None = None
    environment: dict[str, Any] | None = None
    code: dict[str, Any] | None = None
    isolation: str | None = None
    performance_score: float = 1.0


class SystemInfo(Struct):
    """The worker's machine; memory in MB, `cpu` is the number of its cores."""

    cpu: int | None
    cpu_percent: float | None
    ram_total: float | None
    ram_used: float | None
    os: str | None


class TaskHistory(Struct):
    """Since the manager started; a day begins at midnight UTC. Durations in seconds."""

    completed_today: int
    completed: int
    failed: int
    average_duration: float
    success_rate: float


class WorkerMetrics(Struct):
    tasks_per_hour: float
    average_response_time: float
    error_rate: float


class WorkerDetail(WorkerOut, kw_only=True):
    loaded_models: list[LoadedModel]  # type: ignore[assignment]
    system_info: SystemInfo
    task_history: TaskHistory
    metrics: WorkerMetrics


class WorkerListOut(Struct):
    workers: list[WorkerOut]
    total: int
    online: int
    offline: int


class WorkersLaunched(Struct):
    workers: list[WorkerOut]


class WorkerStopped(Struct):
    message: str
    worker_id: str


class WorkerRestarted(Struct):
    """`estimated_downtime` is seconds."""

    message: str
    worker_id: str
    estimated_downtime: float


class NodeOut(Struct):
    node_id: str
    hostname: str
    node_type: str
    status: str
    address: str | None
    version: str | None
    labels: dict[str, str]
    capabilities: dict[str, Any]
    joined_at: datetime | None
    last_heartbeat: datetime | None
    workers: int
    cpu_percent: float | None
    memory_percent: float | None
    disk_percent: float | None
    load_1m: float | None
    gpus: Sequence[Gpu] = ()
    scheduling: str = "open"
    holds: Sequence[HoldOut] = ()
    taints: Sequence[str] = ()
    running_tasks: int = 0
    windows: Sequence[WindowOut] = ()
    breakers: Sequence[BreakerReport] = ()
    clock_skew_s: float | None = None
    version_skew: str | None = None
    shares_models: list[str] | None = None


class BreakerResetIn(Struct, forbid_unknown_fields=True):
    key: str | None = None


class BreakersReset(Struct):
    node_id: str
    reset: list[str]
    workers: list[str]


class NodeListOut(Struct):
    nodes: list[NodeOut]
    total: int


class ClusterOut(Struct):
    cluster_id: str
    status: str
    total_workers: int
    active_workers: int
    queued_tasks: int
    running_tasks: int
    tasks: dict[str, int]
    total_nodes: int
    online_nodes: int
    gpu_utilization: float
    gpu_memory_total_mb: float
    gpu_memory_offered_mb: float
    total_memory_mb: float
    available_memory_mb: float
    uptime_s: float
    version: str
    health: str
    total_memory: float
    available_memory: float
    uptime: float


class DrainOut(Struct):
    running: int


class TokenIn(Struct, forbid_unknown_fields=True):
    ttl_s: float = 86_400.0
    uses: int = 1


class TokenOut(Struct):
    token: str
    expires_at: datetime | None
    uses: int | None


class HealthOut(Struct):
    status: str
    timestamp: datetime
    version: str


class Problem(Struct):
    """The one error shape, inside `error`."""

    code: str
    message: str
    details: dict[str, Any]
    request_id: str
    timestamp: datetime


class ProblemOut(Struct):
    error: Problem
