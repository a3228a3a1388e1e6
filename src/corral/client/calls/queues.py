"""The calls about job types, shares and schedules, and the webhooks' secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from uuid import uuid4

from corral.client.http.endpoint import Flow, Request, get, segment
from corral.client.http.errors import decode
from corral.client.http.payload import encode, post
from corral.core.tasks.job_type import ORCHESTRATOR
from corral.wire.access import WebhookSecret
from corral.wire.queues import (
    CacheCleared,
    JobTypeInfo,
    JobTypeList,
    ScheduleInfo,
    ScheduleList,
    ShareInfo,
    ShareList,
)
from corral.wire.tasks import Submitted


def schedules() -> Flow[list[ScheduleInfo]]:
    """Every schedule, by name."""
    response = yield get("/schedules")
    return decode(response, ScheduleList).schedules


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
    are found by `list_tasks(schedule=...)`.

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
    return decode(response, WebhookSecret).secret


def target_job_type(name: str, target: str | None) -> Flow[None]:
    """Send tasks of a type to an app and path, `echo/run`; to workers with None."""
    endpoint = ORCHESTRATOR if target is None else target
    yield post("/register_job_to_endpoint", job_type=name, endpoint=endpoint)


def job_types() -> Flow[list[JobTypeInfo]]:
    response = yield get("/job-types")
    return decode(response, JobTypeList).job_types


def register_job_type(
    name: str,
    *,
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    batch_limit: int | None = None,
    cache_ttl_s: float | None = None,
) -> Flow[None]:
    """Make a kind of work known, so that tasks of it are accepted.

    Up to `batch_limit` tasks go to one worker at once, for classes with `run_batch`.
    For `cache_ttl_s` seconds a result answers the same input again.
    """
    yield post(
        "/job-types",
        name=name,
        input_schema=input_schema,
        output_schema=output_schema,
        batch_limit=batch_limit,
        cache_ttl_s=cache_ttl_s,
    )


# The calls about shares of the cluster, and about pauses, batches and kept results of
# job types.


def pause_job_type(name: str) -> Flow[None]:
    """Let tasks of this kind wait; what runs goes on. Raises NotFound."""
    yield Request("POST", f"/job-types/{segment(name)}/pause", is_repeatable=True)


def resume_job_type(name: str) -> Flow[None]:
    """Let tasks of this kind start again. Raises NotFound."""
    yield Request("POST", f"/job-types/{segment(name)}/resume", is_repeatable=True)


def set_batch_limit(name: str, limit: int | None) -> Flow[None]:
    """Let so many tasks of this kind go to one worker at once. Raises NotFound.

    For classes with `run_batch`, whose tasks take longer than a moment. None ends that.
    """
    path, body = f"/job-types/{segment(name)}", encode({"batch_limit": limit})
    yield Request("PATCH", path, body=body, is_repeatable=True)


def set_cache_ttl(name: str, seconds: float | None) -> Flow[None]:
    """For so long a result of this kind answers the same input again. Raises NotFound.

    For kinds of work that give the same answer each time. None: every task runs.
    """
    path, body = f"/job-types/{segment(name)}", encode({"cache_ttl_s": seconds})
    yield Request("PATCH", path, body=body, is_repeatable=True)


def clear_cache(name: str) -> Flow[int]:
    """Forget the results that are kept of a kind; how many there were."""
    response = yield Request("DELETE", f"/job-types/{segment(name)}/cache")
    return decode(response, CacheCleared).forgotten


def shares() -> Flow[list[ShareInfo]]:
    """Every share, by name."""
    response = yield get("/shares")
    return decode(response, ShareList).shares


def set_share(
    name: str,
    *,
    weight: float | None = None,
    max_running: int | None = None,
    gpu_seconds_per_day: float | None = None,
) -> Flow[ShareInfo]:
    """Say how much of the cluster an owner, or all tasks with a label, may have.

    Args:
        name: `owner=NAME` of a key, or a label like `team=vision`; `team=*` is each
            other value.
        weight: Its part where all of that key together want more than there is.
        max_running: How many of its tasks may be with workers at once.
        gpu_seconds_per_day: From midnight UTC; then what waits goes on next day.
    """
    limits = {
        "name": name,
        "weight": weight,
        "max_running": max_running,
        "gpu_seconds_per_day": gpu_seconds_per_day,
    }
    body = encode({key: value for key, value in limits.items() if value is not None})
    response = yield Request("PUT", "/shares", body=body, is_repeatable=True)
    return decode(response, ShareInfo)


def remove_share(name: str) -> Flow[None]:
    """Forget a share; its tasks go on without. Raises NotFound."""
    yield Request("DELETE", f"/shares/{segment(name)}")
