"""The JSON shapes of workers: what operators ask, and what workers and agents say."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from corral.wire.agent import WorkerRecipe
from corral.wire.workers import WorkerInfo, WorkerList


class LoadedModel(Struct):
    """A model in a worker's memory; MB and seconds."""

    name: str
    memory_usage: float | None
    load_time: float | None
    last_used: datetime | None


class WorkerIn(WorkerRecipe, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str | None = None
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
