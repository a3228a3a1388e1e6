"""Figures as answers show them: the cluster now, charts over time, GPU-hours."""

from __future__ import annotations

from datetime import datetime

import msgspec

from corral.wire.queues import CacheInfo
from corral.wire.value import Known, Value


class MetricTrend(Value, frozen=True, kw_only=True):
    """Change per hour, and when it would be full at that rate; None when unclear."""

    per_hour: float | None = None
    full_at: datetime | None = None


class ClusterSeries(Value, frozen=True, kw_only=True):
    """A value for each of the `times`; None where there was no reading."""

    average: list[float | None] = []
    maximum: list[float | None] = []


class MetricSeries(ClusterSeries, frozen=True, kw_only=True):
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
    """Each value stands for the step that begins at the time in the same place."""

    node_id: str
    begin: Known[datetime] = msgspec.field(name="from", default=None)
    to: Known[datetime] = None
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


class TaskSeries(Value, frozen=True, kw_only=True):
    """Tasks by step: how many ended, the mean seconds from submit to end of those that
    completed, and the most that waited; None where nothing is known.
    """

    step_s: int = 0
    times: list[datetime] = []
    completed: list[int] = []
    failed: list[int] = []
    response_s: list[float | None] = []
    waiting: list[int | None] = []


class ClusterMetrics(Value, frozen=True, kw_only=True):
    timeframe: str
    begin: Known[datetime] = msgspec.field(name="from", default=None)
    to: Known[datetime] = None
    step_s: int = 0
    metrics: ClusterFigures = ClusterFigures()
    times: list[datetime] = []
    nodes: list[int | None] = []
    series: dict[str, MetricSeries] = {}
    tasks: TaskSeries = TaskSeries()


class UsageGroup(Value, frozen=True, kw_only=True):
    """`series` has the GPU-hours of each step; `runs` is how many ended."""

    name: str
    gpu_hours: float
    hours: float
    runs: int
    series: list[float]


class UsageReport(Value, frozen=True, kw_only=True):
    """GPU-hours are the GPUs tasks had by the time they ran; most used first.

    The name is empty for tasks without that label.
    """

    by: str
    begin: Known[datetime] = msgspec.field(name="from", default=None)
    to: Known[datetime] = None
    step_s: int
    times: list[datetime]
    groups: list[UsageGroup]
    gpu_hours: float
    hours: float


class HealthInfo(Value, frozen=True, kw_only=True):
    status: str
    version: str = ""
    timestamp: Known[datetime] = None


class ClusterStatus(Value, frozen=True, kw_only=True):
    status: str
    cluster_id: str = ""
    total_workers: int = 0
    active_workers: int = 0
    queued_tasks: int = 0
    running_tasks: int = 0
    tasks: dict[str, int] = {}
    total_nodes: int = 0
    online_nodes: int = 0
    gpu_utilization: Known[float] = None
    gpu_memory_total_mb: float = 0.0
    gpu_memory_offered_mb: float = 0.0
    total_memory_mb: float = 0.0
    available_memory_mb: float = 0.0
    uptime_s: float = 0.0
    version: str = ""
    health: str = ""
    # As existing documents name them; numbers, in MB and seconds.
    total_memory: float = 0.0
    available_memory: float = 0.0
    uptime: float = 0.0


class DrainInfo(Value, frozen=True, kw_only=True):
    """`running` tasks have not ended yet."""

    running: int


class SimulatedFigures(Value, frozen=True, kw_only=True):
    """Seconds from a task's arrival to its end; `high` is above normal."""

    tasks: int
    left: int
    expired: int
    redone: int
    mean_s: float
    p50_s: float
    p99_s: float
    p99_high_s: float | None
    slo_pct: float
    loads: int
    load_hours: float
    utilization_pct: float
    span_hours: float


class SimulatedScenario(SimulatedFigures, frozen=True, kw_only=True):
    """A scenario and its figures; `curve` has seconds and percent."""

    scenario: str
    policy: str
    change: str
    workers: int
    curve: list[tuple[float, float]]
