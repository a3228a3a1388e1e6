"""The JSON shapes of /schedules, as msgspec structs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Raw, Struct


class ScheduleIn(Struct, forbid_unknown_fields=True):
    """`task` is what POST /tasks takes, less what only one task can have."""

    cron: str
    task: Raw
    name: str | None = None
    timezone: str = "UTC"
    missed: str = "once"
    overlap: str = "allow"


class ScheduledTask(Struct):
    task_type: str
    parameters: Raw
    priority: int
    model_name: str | None
    timeout: float | None
    retries: int
    deadline: float | None
    labels: dict[str, str]
    overlap: str
    notify: list[str]
    node_labels: dict[str, str]
    tolerates: list[str]
    group: str | None
    group_limit: int | None
    preemptible: bool
    resources: dict[str, Any]


class ScheduleOut(Struct):
    """`explained` is the cron line in words; `note` says why a run was left out."""

    name: str
    cron: str
    explained: str
    timezone: str
    status: str
    missed: str
    overlap: str
    next_at: datetime | None
    last_at: datetime | None
    last_task_id: str | None
    note: str | None
    created_at: datetime | None
    task: ScheduledTask


class ScheduleShown(ScheduleOut):
    """`upcoming` are its next times, `next_at` the first of them."""

    upcoming: list[datetime]


class ScheduleListOut(Struct):
    schedules: list[ScheduleOut]


class ScheduleGone(Struct):
    message: str
    name: str


class ScheduleRun(Struct):
    task_id: str
    status: str


class WebhookSecretOut(Struct):
    secret: str
