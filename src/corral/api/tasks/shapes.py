"""The JSON shapes of tasks (docs/design/wire.md), as msgspec structs.

What is submitted; and of what is told of a task, in `wire/tasks.py`, those where the
API knows more: JSON that it passes on as it is, and what it leaves out.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

from corral.wire.tasks import (
    AttemptInfo,
    Collected,
    Submitted,
    TaskDetail,
    TaskErrorInfo,
    TaskInfo,
    TaskList,
)


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


class ErrorOut(TaskErrorInfo, frozen=True, kw_only=True, omit_defaults=True):
    """A traceback is sent where there is one."""

    message: str


class TaskAccepted(Submitted, frozen=True, kw_only=True, omit_defaults=True):
    """What is not known yet, beside these, is left out."""

    estimated_wait_time: float | None
    assigned_worker: str | None
    created_at: datetime


class TaskBrief(TaskInfo, frozen=True, kw_only=True):
    created_at: datetime
    result: Raw | None
    error: ErrorOut | None


class AttemptOut(AttemptInfo, frozen=True, kw_only=True):
    finished_at: datetime
    error: ErrorOut | None


class TaskOut(TaskDetail, frozen=True, kw_only=True):
    created_at: datetime
    result: Raw | None
    error: ErrorOut | None
    parameters: Raw | None
    attempts: list[AttemptOut]  # type: ignore[assignment]


class CollectOut(Collected, frozen=True, kw_only=True):
    tasks: list[TaskBrief]  # type: ignore[assignment]


class TaskListOut(TaskList, frozen=True, kw_only=True):
    tasks: list[TaskBrief]  # type: ignore[assignment]


class TaskEnded(Struct):
    message: str
    task_id: str
    status: str
