"""The JSON shapes of workers: what operators ask, and what workers and agents say."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

from corral.wire.workers import WorkerInfo, WorkerList


class LoadedModel(Struct):
    """A model in a worker's memory; MB and seconds."""

    name: str
    memory_usage: float | None
    load_time: float | None
    last_used: datetime | None


class DeclaredWorker(Struct):
    name: str
    worker_class: str
    job_types: list[str] = []
    params: dict[str, Any] = {}
    concurrency: int = 1
    url: str | None = None
    gpus: str = ""


class WorkerRegisterIn(Struct):
    pid: int
    epoch: int


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


class MemoryLeakIn(Struct):
    """Memory of a model that did not come back when it went; MB."""

    model: str
    left_mb: float
    size_mb: float


class ModelsIn(Struct):
    number: int
    held: list[HeldIn] = []
    sizes: dict[str, float] = {}
    restarts: int = 0
    worn: MemoryLeakIn | None = None


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


class WorkerIn(Struct, forbid_unknown_fields=True):
    worker_class: str
    name: str | None = None
    job_types: list[str] = []
    params: dict[str, Any] = {}
    concurrency: int = 1
    node_id: str | None = None
    count: int = 1
    gpus: int | str = ""


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


class WorkerOut(WorkerInfo, frozen=True, kw_only=True):
    loaded_models: list[str]


class WorkerDetail(WorkerInfo, frozen=True, kw_only=True):
    loaded_models: list[LoadedModel]
    system_info: SystemInfo
    task_history: TaskHistory
    metrics: WorkerMetrics


class WorkerListOut(WorkerList, frozen=True, kw_only=True):
    workers: list[WorkerOut]  # type: ignore[assignment]


class WorkersLaunched(Struct):
    workers: list[WorkerOut]


class WorkerStopped(Struct):
    message: str
    worker_id: str
