"""Workers as answers show them, worker types, and how many there are by demand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from corral.core.nodes.worker_type import WorkerTypeTerms
from corral.wire.value import PlainValue, Value


class WorkerInfo(Value, frozen=True, kw_only=True):
    """`loaded_models` are names, or more where one worker is asked for."""

    worker_id: str
    status: str
    name: str = ""
    node_id: str = ""
    state: str = ""
    worker_class: str = ""
    job_types: list[str] = []
    concurrency: int = 1
    current_tasks: int = 0
    loaded_models: list[Any] = []
    gpu_info: list[dict[str, Any]] = []
    memory_usage: dict[str, float] = {}
    performance_metrics: dict[str, float] = {}
    error: str | None = None
    pid: int | None = None
    restarts: int = 0
    last_heartbeat: datetime | None = None
    worker_type: str | None = None
    environment: dict[str, Any] | None = None
    code: dict[str, Any] | None = None
    isolation: str | None = None
    performance_score: float = 1.0


class WorkerList(Value, frozen=True, kw_only=True):
    workers: list[WorkerInfo]
    total: int = 0
    online: int = 0
    offline: int = 0


class WorkerRestart(Value, frozen=True, kw_only=True):
    """`estimated_downtime` is seconds."""

    worker_id: str
    message: str = ""
    estimated_downtime: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkerTypeInfo(PlainValue, WorkerTypeTerms):
    environment: dict[str, Any] | None = None  # type: ignore[assignment]
    version: int = 0
    digest: str | None = None


class WorkerTypeList(Value, frozen=True, kw_only=True):
    worker_types: list[WorkerTypeInfo]


class Scaled(Value, frozen=True, kw_only=True):
    """What was decided last; `event` is cluster_scaled_up or cluster_scaled_down."""

    at: datetime
    event: str
    worker_id: str
    node_id: str
    reason: str


class TypeScaling(Value, frozen=True, kw_only=True):
    """A worker type with limits; `predicted_wait_s` is None while nobody serves it."""

    worker_type: str
    job_type: str | None = None
    min_workers: int = 0
    max_workers: int = 0
    workers: int = 0
    serving: int = 0
    starting: int = 0
    leaving: int = 0
    waiting: int = 0
    predicted_wait_s: float | None = None
    blocked: str | None = None
    last: Scaled | None = None


class Scaling(Value, frozen=True, kw_only=True):
    """Whether demand decides over workers, within what, and every type it does for."""

    enabled: bool
    max_workers: int
    total_workers: int = 0
    wait_s: float
    idle_s: float
    cooldown_s: float
    types: list[TypeScaling] = []


class Registration(Value, frozen=True, kw_only=True):
    """What a worker is told that registers itself."""

    incarnation: str
    secret: str
    queue: str
    concurrency: int = 1
    job_types: list[str] = []
    token: str = ""
