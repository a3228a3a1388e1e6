"""The JSON shapes of tasks (docs/design/wire.md), as msgspec structs.

Of what `wire/tasks.py` has of a task, those where the API knows more: JSON that it
passes on as it is, and what it leaves out.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Raw, Struct

from corral.wire.tasks import (
    AttemptInfo,
    Collected,
    Submitted,
    TaskDetail,
    TaskErrorInfo,
    TaskInfo,
    TaskList,
)


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
