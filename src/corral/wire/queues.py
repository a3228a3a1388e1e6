"""Job types, schedules, shares and apps as answers show them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from corral.wire.value import Known, Value


class CacheInfo(Value, frozen=True, kw_only=True):
    """Kept results; hits and misses are counted since the manager's start."""

    hits: int = 0
    misses: int = 0
    hit_rate: float | None = None
    entries: int = 0
    bytes: int = 0


class JobTypeInfo(Value, frozen=True, kw_only=True):
    """`waiting` counts tasks that wait, for a worker or for anything else.

    `running` counts those that workers have.
    """

    name: str
    target: Known[str] = None
    input_schema: Any = None
    output_schema: Any = None
    queue_order: str = "priority"
    waiting: int = 0
    paused: bool = False
    batch_limit: int | None = None
    cache_ttl_s: float | None = None
    cache: CacheInfo | None = None
    running: int = 0


class JobTypeList(Value, frozen=True, kw_only=True):
    job_types: list[JobTypeInfo]


class CacheCleared(Value, frozen=True, kw_only=True):
    """`forgotten` is how many results were kept."""

    message: str = ""
    job_type: str = ""
    forgotten: int


class RouteInfo(Value, frozen=True, kw_only=True):
    """A path of an app, and all below it, with a timeout of its own."""

    path: str
    timeout: float


class AppInfo(Value, frozen=True, kw_only=True):
    name: str
    url: str
    timeout: float = 60.0
    concurrency: int = 1
    job_types: list[str] = []
    created_at: datetime | None = None
    routes: list[RouteInfo] = []


class AppList(Value, frozen=True, kw_only=True):
    apps: list[AppInfo]


class ScheduleBrief(Value, frozen=True, kw_only=True):
    """A schedule; `note` says why its last run was left out, if it was.

    `explained` is the cron line in words, `task` what is submitted.
    """

    name: str
    cron: str
    timezone: str = "UTC"
    explained: str = ""
    status: str = "active"
    missed: str = "once"
    overlap: str = "allow"
    next_at: datetime | None = None
    last_at: datetime | None = None
    last_task_id: str | None = None
    note: str | None = None
    created_at: datetime | None = None
    task: Any = {}


class ScheduleInfo(ScheduleBrief, frozen=True, kw_only=True):
    """`upcoming` are its next times, when one schedule is asked for."""

    upcoming: list[datetime] = []


class ScheduleList(Value, frozen=True, kw_only=True):
    schedules: list[ScheduleInfo]


class ShareInfo(Value, frozen=True, kw_only=True):
    """A share and how it stands; `name` reads KEY=VALUE, like `team=vision`.

    `gpu_seconds_today` counts what has ended, from midnight UTC.
    """

    name: str
    weight: float | None = None
    max_running: int | None = None
    gpu_seconds_per_day: float | None = None
    running: int = 0
    waiting: int = 0
    gpu_seconds_today: float = 0.0


class ShareList(Value, frozen=True, kw_only=True):
    shares: list[ShareInfo]
