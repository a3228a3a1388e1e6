"""The JSON shapes of job types and of the gateway's apps, as msgspec structs."""

from __future__ import annotations

from datetime import datetime

from msgspec import UNSET, Raw, Struct, UnsetType


class JobTypeIn(Struct, forbid_unknown_fields=True):
    name: str
    input_schema: Raw | UnsetType = UNSET
    output_schema: Raw | UnsetType = UNSET
    target: str | None = None
    queue_order: str = "priority"
    batch_limit: int | None = None
    cache_ttl_s: float | None = None


class JobTypeChange(Struct, forbid_unknown_fields=True):
    """`batch_limit` is how many tasks go to one worker at once, `cache_ttl_s` for how
    long a result answers the same input again; null ends either.
    """

    batch_limit: int | UnsetType | None = UNSET
    cache_ttl_s: float | UnsetType | None = UNSET


class CacheOut(Struct):
    """Kept results; hits and misses are counted since the manager's start."""

    hits: int
    misses: int
    hit_rate: float | None
    entries: int
    bytes: int


class JobTypeOut(Struct):
    """`waiting` counts tasks that wait, for a worker or for anything else.

    `running` counts those that workers have.
    """

    name: str
    target: str
    input_schema: Raw | None
    output_schema: Raw | None
    queue_order: str
    waiting: int
    paused: bool = False
    batch_limit: int | None = None
    cache_ttl_s: float | None = None
    cache: CacheOut | None = None
    running: int = 0


class JobTypeListOut(Struct):
    job_types: list[JobTypeOut]


class JobTypeGone(Struct):
    message: str
    job_type: str


class QueueCleared(Struct):
    message: str
    job_type: str
    cancelled: int


class CacheCleared(Struct):
    message: str
    job_type: str
    forgotten: int


class AppIn(Struct, forbid_unknown_fields=True):
    """`timeout` is how many seconds the app may be silent."""

    name: str
    url: str
    timeout: float = 60.0
    concurrency: int = 64


class RouteIn(Struct, forbid_unknown_fields=True):
    path: str
    timeout: float


class RouteOut(Struct):
    """A path of an app, and all below it, with a limit of its own."""

    path: str
    timeout: float


class AppOut(Struct):
    name: str
    url: str
    timeout: float
    concurrency: int
    job_types: list[str]
    created_at: datetime | None
    routes: list[RouteOut]


class AppListOut(Struct):
    apps: list[AppOut]


class AppGone(Struct):
    message: str
    app: str
