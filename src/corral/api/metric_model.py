"""The JSON shapes of charts (docs/metrics.md): numbers, null where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct, field

from corral.api.gateway_model import CacheOut


class TrendOut(Struct):
    """`full_at`: when it would be full at this rate; null when that is unclear."""

    per_hour: float | None
    full_at: datetime | None


class SeriesOut(Struct):
    average: Sequence[float | None]
    maximum: Sequence[float | None]
    trend: TrendOut


class GpuMetricsOut(Struct):
    id: str
    index: int
    vendor: str
    name: str
    driver: str | None
    memory_total_mb: float | None
    series: dict[str, SeriesOut]


class NodeMetricsOut(Struct):
    """Each value stands for the step that begins at the time in the same place."""

    node_id: str
    from_: datetime = field(name="from")
    to: datetime
    step_s: int
    times: list[datetime]
    series: dict[str, SeriesOut]
    gpus: list[GpuMetricsOut]


class RangeOut(Struct):
    average: float | None
    peak: float | None
    minimum: float | None


class MemoryOut(Struct):
    """In MB; `efficiency` is the share of what there was that was used, 0 to 1."""

    average: float | None
    peak: float | None
    efficiency: float | None


class FiguresOut(Struct):
    """The cluster in numbers; `peak_throughput` is tasks a minute."""

    total_tasks: int
    successful_tasks: int
    failed_tasks: int
    success_rate: float | None
    average_response_time: float | None
    peak_throughput: float
    gpu_utilization: RangeOut
    memory_usage: MemoryOut
    gpu_memory_usage: MemoryOut
    result_cache: CacheOut


class ClusterSeriesOut(Struct):
    average: Sequence[float | None]
    maximum: Sequence[float | None]


class TaskSeriesOut(Struct):
    """Tasks by step: how many ended, the mean seconds from submit to end of those that
    completed, and the most that waited; null where nothing is known.
    """

    step_s: int
    times: list[datetime]
    completed: list[int]
    failed: list[int]
    response_s: Sequence[float | None]
    waiting: Sequence[int | None]


class ClusterMetricsOut(Struct):
    timeframe: str
    from_: datetime = field(name="from")
    to: datetime
    step_s: int
    metrics: FiguresOut
    times: list[datetime]
    nodes: Sequence[int | None]
    series: dict[str, ClusterSeriesOut]
    tasks: TaskSeriesOut
