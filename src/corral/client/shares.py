"""The calls about shares of the cluster, and about pauses, batches and kept results
of job types.
"""

from __future__ import annotations

import msgspec

from corral.client.exchange import Flow, Request, get, segment
from corral.client.fault import decode
from corral.client.payload import encode
from corral.client.value import Value


class ShareInfo(Value, frozen=True, kw_only=True):
    """A share and how it stands; `name` reads KEY=VALUE, like `team=vision`."""

    name: str
    weight: float | None = None
    max_running: int | None = None
    gpu_seconds_per_day: float | None = None
    running: int = 0
    waiting: int = 0
    gpu_seconds_today: float = 0.0


class _Shares(msgspec.Struct):
    shares: list[ShareInfo]


class _Cleared(msgspec.Struct):
    forgotten: int


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
    return decode(response, _Cleared).forgotten


def shares() -> Flow[list[ShareInfo]]:
    """Every share, by name."""
    response = yield get("/shares")
    return decode(response, _Shares).shares


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
