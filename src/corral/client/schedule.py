"""The calls about schedules, and the secret that signs webhooks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal
from uuid import uuid4

import msgspec

from corral.client.exchange import Flow, Request, get, segment
from corral.client.fault import decode
from corral.client.payload import encode
from corral.client.value import Submitted, Value


class ScheduleInfo(Value, frozen=True, kw_only=True):
    """A schedule; `note` says why its last run was left out, if it was.

    `upcoming` are its next times, when one schedule is asked for.
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
    task: dict[str, Any] = {}
    upcoming: list[datetime] = []


class _Schedules(msgspec.Struct):
    schedules: list[ScheduleInfo]


class _Secret(msgspec.Struct):
    secret: str


def schedules() -> Flow[list[ScheduleInfo]]:
    """Every schedule, by name."""
    response = yield get("/schedules")
    return decode(response, _Schedules).schedules


def schedule(name: str) -> Flow[ScheduleInfo]:
    response = yield get(f"/schedules/{segment(name)}")
    return decode(response, ScheduleInfo)


def add_schedule(
    cron: str,
    task: Mapping[str, Any],
    *,
    name: str | None = None,
    timezone: str | None = None,
    missed: Literal["skip", "once", "all"] | str | None = None,
    overlap: Literal["allow", "skip"] | str | None = None,
) -> Flow[ScheduleInfo]:
    """Submit a task at the times of a cron line, like `0 3 * * *`.

    `task` is as in a batch: `{"task_type": ..., "parameters": ..., ...}`. Its runs
    have the label `schedule` with the schedule's name.

    Raises:
        Conflict: there is a schedule of that name.
    """
    fields = {
        "cron": cron,
        "task": task,
        "name": name,
        "timezone": timezone,
        "missed": missed,
        "overlap": overlap,
    }
    given = {key: value for key, value in fields.items() if value is not None}
    response = yield Request("POST", "/schedules", body=encode(given))
    return decode(response, ScheduleInfo)


def pause_schedule(name: str) -> Flow[ScheduleInfo]:
    """Submit nothing until it is resumed."""
    path = f"/schedules/{segment(name)}/pause"
    response = yield Request("POST", path, is_repeatable=True)
    return decode(response, ScheduleInfo)


def resume_schedule(name: str) -> Flow[ScheduleInfo]:
    """Go on from now; what was not run meanwhile was not missed."""
    path = f"/schedules/{segment(name)}/resume"
    response = yield Request("POST", path, is_repeatable=True)
    return decode(response, ScheduleInfo)


def remove_schedule(name: str) -> Flow[None]:
    """Forget a schedule; tasks it has submitted stay."""
    yield Request("DELETE", f"/schedules/{segment(name)}")


def run_schedule(name: str) -> Flow[Submitted]:
    """Submit its task now, beside the plan."""
    response = yield Request(
        "POST",
        f"/schedules/{segment(name)}/run",
        is_repeatable=True,
        headers={"Idempotency-Key": uuid4().hex},
    )
    return decode(response, Submitted)


def webhook_secret() -> Flow[str]:
    """What signs the calls of webhooks; asks for an admin's key."""
    response = yield get("/cluster/webhook-secret")
    return decode(response, _Secret).secret
