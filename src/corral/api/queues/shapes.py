"""The JSON shapes of job types and of schedules, as msgspec structs."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import UNSET, Raw, Struct, UnsetType

from corral.wire.queues import ScheduleBrief, ScheduleInfo
from corral.wire.tasks import TaskIn


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


class JobTypeGone(Struct):
    message: str
    job_type: str


class QueueCleared(Struct):
    message: str
    job_type: str
    cancelled: int


class ScheduleIn(Struct, forbid_unknown_fields=True):
    """`task` is what POST /tasks takes, less what only one task can have."""

    cron: str
    task: Raw
    name: str | None = None
    timezone: str = "UTC"
    missed: str = "once"
    overlap: str = "allow"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOut(ScheduleBrief):
    task: TaskIn


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleShown(ScheduleInfo):
    task: TaskIn


class ScheduleListOut(Struct):
    schedules: list[ScheduleOut]


class ScheduleGone(Struct):
    message: str
    name: str


class ScheduleRun(Struct):
    task_id: str
    status: str
