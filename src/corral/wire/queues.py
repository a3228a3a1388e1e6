"""Job types, schedules, shares and apps as answers show them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from corral.core.tasks.schedule import ScheduleTerms
from corral.wire.value import Known, PlainValue, Value


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleBrief(PlainValue, ScheduleTerms):
    """`explained` is the cron line in words, `task` what is submitted."""

    missed: str = "once"  # type: ignore[assignment]
    overlap: str = "allow"  # type: ignore[assignment]
    explained: str = ""
    status: str = "active"
    task: Any = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleInfo(ScheduleBrief):
    """`upcoming` are its next times, when one schedule is asked for."""

    upcoming: list[datetime] = field(default_factory=list)


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
