"""/metrics, /nodes/{id}/metrics, /cluster/metrics: figures of now, and over time.

/metrics is the text that Prometheus reads; the others are charts (docs/metrics.md):
numbers, null where there is none. Nothing is counted here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from msgspec import Struct, field

from corral.api.body import answer
from corral.api.caller import Caller, caller, manager_of
from corral.api.openapi import described
from corral.api.queues.job_types import cache_out
from corral.api.queues.shapes import CacheOut
from corral.core.access.key import Scope
from corral.core.insight.chart_series import Series, over_time, read_moment
from corral.core.insight.metric import (
    MINUTES_S,
    Figures,
    MetricSpan,
    TaskStep,
    TaskTotals,
)
from corral.core.nodes.gpu import Gpu
from corral.errors import InvalidField
from corral.manager.insight.charts import TIMEFRAMES_S, ClusterCharts
from corral.manager.prometheus import CONTENT_TYPE, exposition

router = APIRouter()
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
_DIGITS = 3
_reader = caller(Scope.READ)
_DESCRIBED = described(dict)
_TEXT = {"text/plain": {"schema": {"type": "string"}}}
_DESCRIBED["openapi_extra"]["responses"]["200"]["content"] = _TEXT


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


async def _allowed(request: Request) -> None:
    """Anybody, where the settings say so; else who may read."""
    if not manager_of(request).config.is_metrics_public:
        await _reader(request)


@router.get(
    "/nodes/{node_id}/metrics",
    summary="How one node and its GPUs fared",
    tags=["nodes"],
    **described(NodeMetricsOut, errors=(404, 422)),
)
async def node_metrics(
    node_id: str,
    who: Reader,
    begin: Annotated[str, Query(alias="from")] = "-24h",
    to: str = "now",
    step: Annotated[int | None, Query(ge=1, le=366 * 86_400)] = None,
) -> Response:
    manager = who.manager
    manager.nodes.get(node_id)
    now = manager.now()
    drawn = await manager.insight.charts.node(
        node_id, read_moment(begin, now, "from"), read_moment(to, now, "to"), step
    )
    return answer(
        NodeMetricsOut(
            node_id=node_id,
            from_=_time(drawn.span.begin),
            to=_time(drawn.span.end),
            step_s=drawn.span.step_s,
            times=_times(drawn.span),
            series=_series(drawn.series),
            gpus=[_gpu(gpu, series) for gpu, series in drawn.gpus],
        )
    )


@router.get(
    "/cluster/metrics",
    summary="How the cluster fared",
    tags=["cluster"],
    **described(ClusterMetricsOut, errors=(422,)),
)
async def cluster_metrics(who: Reader, timeframe: str = "24h") -> Response:
    if timeframe not in TIMEFRAMES_S:
        raise InvalidField(
            f"timeframe must be one of {', '.join(TIMEFRAMES_S)}", field="timeframe"
        )
    drawn = await who.manager.insight.charts.cluster(timeframe)
    return answer(
        ClusterMetricsOut(
            timeframe=timeframe,
            from_=_time(drawn.span.begin),
            to=_time(drawn.span.end),
            step_s=drawn.span.step_s,
            metrics=_figures(drawn, cache_out(who.manager.tasks.results.figures())),
            times=_times(drawn.span),
            nodes=drawn.nodes,
            series={
                name: ClusterSeriesOut(
                    _rounded(series.average), _rounded(series.maximum)
                )
                for name, series in drawn.series.items()
            },
            tasks=_tasks(drawn),
        )
    )


@router.get(
    "/metrics",
    summary="Figures for Prometheus, in its text format",
    tags=["cluster"],
    **_DESCRIBED,
)
async def metrics(
    request: Request, _may: Annotated[None, Depends(_allowed)]
) -> Response:
    manager = manager_of(request)
    parts = []
    for family in chain(
        manager.insight.counters(),
        request.app.state.http_meter.families(),
        manager.gauges(),
    ):
        parts.append(exposition(family))
        # Hundreds of nodes make a long text: others have their turn meanwhile.
        await asyncio.sleep(0)
    return Response("".join(parts), headers={"content-type": CONTENT_TYPE})


def _tasks(drawn: ClusterCharts) -> TaskSeriesOut:
    span = drawn.task_span
    steps = [drawn.task_steps.get(at, TaskStep(at)) for at in span.times]
    return TaskSeriesOut(
        span.step_s,
        _times(span),
        [step.completed for step in steps],
        [step.failed for step in steps],
        [
            _round(step.response_s / step.completed) if step.completed else None
            for step in steps
        ],
        [step.waiting for step in steps],
    )


def _time(epoch_s: int) -> datetime:
    return datetime.fromtimestamp(epoch_s, UTC)


def _times(span: MetricSpan) -> list[datetime]:
    return [_time(at) for at in span.times]


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)


def _rounded(figures: Figures) -> list[float | None]:
    return [_round(value) for value in figures]


def _series(drawn: Mapping[str, Series]) -> dict[str, SeriesOut]:
    return {
        name: SeriesOut(
            _rounded(series.average),
            _rounded(series.maximum),
            TrendOut(_round(series.trend.per_hour), series.trend.full_at),
        )
        for name, series in drawn.items()
    }


def _gpu(gpu: Gpu, drawn: Mapping[str, Series]) -> GpuMetricsOut:
    return GpuMetricsOut(
        gpu.id,
        gpu.index,
        gpu.vendor,
        gpu.name,
        gpu.driver,
        gpu.memory_total_mb,
        _series(drawn),
    )


def _figures(drawn: ClusterCharts, cache: CacheOut) -> FiguresOut:
    tasks: TaskTotals = drawn.tasks
    judged = tasks.completed + tasks.failed
    response_s = tasks.response_s / tasks.completed if tasks.completed else None
    use = over_time(drawn.series["gpu_utilization_percent"])
    return FiguresOut(
        total_tasks=tasks.ended,
        successful_tasks=tasks.completed,
        failed_tasks=tasks.failed,
        success_rate=_round(tasks.completed / judged) if judged else None,
        average_response_time=_round(response_s),
        peak_throughput=round(tasks.busiest * 60 / MINUTES_S, _DIGITS),
        gpu_utilization=RangeOut(
            _round(use.average), _round(use.peak), _round(use.minimum)
        ),
        memory_usage=_memory(drawn.series, "memory"),
        gpu_memory_usage=_memory(drawn.series, "gpu_memory"),
        result_cache=cache,
    )


def _memory(series: Mapping[str, Series], name: str) -> MemoryOut:
    used = over_time(series[f"{name}_used_mb"])
    total = over_time(series[f"{name}_total_mb"]).average
    share = used.average / total if used.average is not None and total else None
    return MemoryOut(_round(used.average), _round(used.peak), _round(share))
