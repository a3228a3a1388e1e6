"""The calls about figures over time, usage, and the scheduler's journal."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from corral.client.http.endpoint import Flow, get, segment
from corral.client.http.errors import decode
from corral.client.values import CacheInfo
from corral.wire.value import Value


class MetricTrend(Value, frozen=True, kw_only=True):
    """Change per hour, and when it would be full at that rate; None when unclear."""

    per_hour: float | None = None
    full_at: datetime | None = None


class MetricSeries(Value, frozen=True, kw_only=True):
    """A value for each of the `times`; None where there was no reading."""

    average: list[float | None] = []
    maximum: list[float | None] = []
    trend: MetricTrend = MetricTrend()


class GpuMetrics(Value, frozen=True, kw_only=True):
    id: str
    index: int = 0
    vendor: str = ""
    name: str = ""
    driver: str | None = None
    memory_total_mb: float | None = None
    series: dict[str, MetricSeries] = {}


class NodeMetrics(Value, frozen=True, kw_only=True):
    node_id: str
    begin: datetime | None = msgspec.field(name="from", default=None)
    to: datetime | None = None
    step_s: int = 0
    times: list[datetime] = []
    series: dict[str, MetricSeries] = {}
    gpus: list[GpuMetrics] = []


class MetricRange(Value, frozen=True, kw_only=True):
    average: float | None = None
    peak: float | None = None
    minimum: float | None = None


class MemoryUsage(Value, frozen=True, kw_only=True):
    """In MB; `efficiency` is the share of all there was, 0 to 1."""

    average: float | None = None
    peak: float | None = None
    efficiency: float | None = None


class ClusterFigures(Value, frozen=True, kw_only=True):
    """Tasks that ended, times in seconds, `peak_throughput` in tasks a minute."""

    total_tasks: int = 0
    successful_tasks: int = 0
    failed_tasks: int = 0
    success_rate: float | None = None
    average_response_time: float | None = None
    peak_throughput: float = 0.0
    gpu_utilization: MetricRange = MetricRange()
    memory_usage: MemoryUsage = MemoryUsage()
    gpu_memory_usage: MemoryUsage = MemoryUsage()
    result_cache: CacheInfo = CacheInfo()


class ClusterMetrics(Value, frozen=True, kw_only=True):
    timeframe: str
    begin: datetime | None = msgspec.field(name="from", default=None)
    to: datetime | None = None
    step_s: int = 0
    metrics: ClusterFigures = ClusterFigures()
    times: list[datetime] = []
    nodes: list[int | None] = []
    series: dict[str, MetricSeries] = {}


def node_metrics(
    node_id: str,
    *,
    since: str | float | None = None,
    until: str | float | None = None,
    step: int | None = None,
) -> Flow[NodeMetrics]:
    """How a node and its GPUs fared.

    Args:
        node_id: The node.
        since: Like `-24h` (the default), epoch seconds, or an ISO 8601 time.
        until: The same; now without it.
        step: Seconds between points; without it, so that there are at most 300.
    """
    path = f"/nodes/{segment(node_id)}/metrics"
    # A word of the language cannot be the name of an argument.
    when: dict[str, Any] = {"from": since}
    response = yield get(path, to=until, step=step, **when)
    return decode(response, NodeMetrics)


def cluster_metrics(timeframe: str = "24h") -> Flow[ClusterMetrics]:
    """How the cluster fared in the last `1h`, `24h`, `7d` or `30d`."""
    response = yield get("/cluster/metrics", timeframe=timeframe)
    return decode(response, ClusterMetrics)


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


# The call for the scheduler's journal.


def journal(since_s: float = 86_400.0) -> Flow[bytes]:
    """What the scheduler was told and decided, as lines of JSON.

    Args:
        since_s: At least the last so many seconds, as far as they are remembered.

    Raises:
        Conflict: The manager keeps no journal.
    """
    response = yield get("/cluster/journal", since_s=since_s)
    return response.body
