"""The JSON shapes of tasks (docs/design/wire.md), as msgspec structs.

What is submitted, and what is told of a task; `api/tasks/render.py` fills the latter.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType


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


class EstimateOut(Struct):
    """What such tasks take, seconds and MB; four of five lie from low to high.

    `runs` and `memory_runs` are how many of them that is learned from.
    """

    duration: float
    low: float
    high: float
    runs: int
    memory_mb: float | None = None
    memory_high_mb: float | None = None
    memory_runs: int = 0


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
