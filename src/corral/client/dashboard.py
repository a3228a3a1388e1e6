"""The calls about the dashboard: a link that signs in once, and what was used."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from corral.client.exchange import Flow, Request, get
from corral.client.fault import decode
from corral.client.value import Value


class DashboardLink(Value, frozen=True, kw_only=True):
    """`path`, after the manager's URL, signs in whoever opens it first."""

    path: str
    expires_in_s: float


class UsageGroup(Value, frozen=True, kw_only=True):
    """`series` has the GPU-hours of each step; `runs` is how many ended."""

    name: str
    gpu_hours: float
    hours: float
    runs: int
    series: list[float]


class UsageReport(Value, frozen=True, kw_only=True):
    """GPU-hours are the GPUs tasks had by the time they ran; most used first."""

    by: str
    step_s: int
    times: list[datetime]
    groups: list[UsageGroup]
    gpu_hours: float
    hours: float


def dashboard_link() -> Flow[DashboardLink]:
    """A link to the dashboard for whoever has this client's key."""
    response = yield Request("POST", "/ui/links")
    return decode(response, DashboardLink)


def usage(
    by: str = "owner", *, since: str = "-7d", until: str = "now"
) -> Flow[UsageReport]:
    """GPU-hours by `owner`, `job_type` or `label:KEY`.

    Args:
        by: What runs are put together by.
        since: Like `-24h`, or a time in ISO 8601.
        until: The same.
    """
    when: dict[str, Any] = {"from": since, "to": until}
    response = yield get("/usage", by=by, **when)
    return decode(response, UsageReport)
