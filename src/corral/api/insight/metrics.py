"""/metrics, /nodes/{id}/metrics, /cluster/metrics: figures of now, and over time.

/metrics is the text that Prometheus reads; the others are charts (docs/metrics.md):
numbers, null where there is none. Nothing is counted here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import chain
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from corral.api.body import answer
from corral.api.caller import Caller, caller, manager_of
from corral.api.openapi import described
from corral.api.queues.job_types import cache_out
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
from corral.wire.insight import (
    ClusterFigures,
    ClusterMetrics,
    ClusterSeries,
    GpuMetrics,
    MemoryUsage,
    MetricRange,
    MetricSeries,
    MetricTrend,
    NodeMetrics,
    TaskSeries,
)
from corral.wire.queues import CacheInfo

router = APIRouter()
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
_DIGITS = 3
_reader = caller(Scope.READ)
_DESCRIBED = described(dict)
_TEXT = {"text/plain": {"schema": {"type": "string"}}}
_DESCRIBED["openapi_extra"]["responses"]["200"]["content"] = _TEXT


class ClusterMetricsOut(ClusterMetrics, frozen=True, kw_only=True):
    """The cluster's series have no trend."""

    series: dict[str, ClusterSeries]  # type: ignore[assignment]


async def _allowed(request: Request) -> None:
    """Anybody, where the settings say so; else who may read."""
    if not manager_of(request).config.is_metrics_public:
        await _reader(request)


@router.get(
    "/nodes/{node_id}/metrics",
    summary="How one node and its GPUs fared",
    tags=["nodes"],
    **described(NodeMetrics, errors=(404, 422)),
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
        NodeMetrics(
            node_id=node_id,
            begin=_time(drawn.span.begin),
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
            begin=_time(drawn.span.begin),
            to=_time(drawn.span.end),
            step_s=drawn.span.step_s,
            metrics=_figures(drawn, cache_out(who.manager.tasks.results.figures())),
            times=_times(drawn.span),
            nodes=list(drawn.nodes),
            series={
                name: ClusterSeries(
                    average=_rounded(series.average), maximum=_rounded(series.maximum)
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


def _tasks(drawn: ClusterCharts) -> TaskSeries:
    span = drawn.task_span
    steps = [drawn.task_steps.get(at, TaskStep(at)) for at in span.times]
    return TaskSeries(
        step_s=span.step_s,
        times=_times(span),
        completed=[step.completed for step in steps],
        failed=[step.failed for step in steps],
        response_s=[
            _round(step.response_s / step.completed) if step.completed else None
            for step in steps
        ],
        waiting=[step.waiting for step in steps],
    )


def _time(epoch_s: int) -> datetime:
    return datetime.fromtimestamp(epoch_s, UTC)


def _times(span: MetricSpan) -> list[datetime]:
    return [_time(at) for at in span.times]


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)


def _rounded(figures: Figures) -> list[float | None]:
    return [_round(value) for value in figures]


def _series(drawn: Mapping[str, Series]) -> dict[str, MetricSeries]:
    return {
        name: MetricSeries(
            average=_rounded(series.average),
            maximum=_rounded(series.maximum),
            trend=MetricTrend(
                per_hour=_round(series.trend.per_hour), full_at=series.trend.full_at
            ),
        )
        for name, series in drawn.items()
    }


def _gpu(gpu: Gpu, drawn: Mapping[str, Series]) -> GpuMetrics:
    return GpuMetrics.of(gpu, series=_series(drawn))


def _figures(drawn: ClusterCharts, cache: CacheInfo) -> ClusterFigures:
    tasks: TaskTotals = drawn.tasks
    judged = tasks.completed + tasks.failed
    response_s = tasks.response_s / tasks.completed if tasks.completed else None
    use = over_time(drawn.series["gpu_utilization_percent"])
    return ClusterFigures(
        total_tasks=tasks.ended,
        successful_tasks=tasks.completed,
        failed_tasks=tasks.failed,
        success_rate=_round(tasks.completed / judged) if judged else None,
        average_response_time=_round(response_s),
        peak_throughput=round(tasks.busiest * 60 / MINUTES_S, _DIGITS),
        gpu_utilization=MetricRange(
            average=_round(use.average),
            peak=_round(use.peak),
            minimum=_round(use.minimum),
        ),
        memory_usage=_memory(drawn.series, "memory"),
        gpu_memory_usage=_memory(drawn.series, "gpu_memory"),
        result_cache=cache,
    )


def _memory(series: Mapping[str, Series], name: str) -> MemoryUsage:
    used = over_time(series[f"{name}_used_mb"])
    total = over_time(series[f"{name}_total_mb"]).average
    share = used.average / total if used.average is not None and total else None
    return MemoryUsage(
        average=_round(used.average), peak=_round(used.peak), efficiency=_round(share)
    )
