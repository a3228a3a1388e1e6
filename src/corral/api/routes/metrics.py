"""/nodes/{id}/metrics and /cluster/metrics: how machines and tasks fared over time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from corral.api import metric_model as model
from corral.api.deps import Caller, answer, caller
from corral.api.describe import described
from corral.api.gateway_model import CacheOut
from corral.api.routes.job_types import cache_out
from corral.core.access.key import Scope
from corral.core.insight.metric import MINUTES_S, Figures, Span, TaskStep, TaskTotals
from corral.core.insight.series import Series, over_time, read_moment
from corral.core.nodes.gpu import Gpu
from corral.errors import InvalidField
from corral.manager.insight.charts import TIMEFRAMES_S, ClusterHistory

router = APIRouter()
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
_DIGITS = 3


@router.get(
    "/nodes/{node_id}/metrics",
    summary="How one node and its GPUs fared",
    tags=["nodes"],
    **described(model.NodeMetricsOut, errors=(404, 422)),
)
async def node_metrics(
    node_id: str,
    who: Reader,
    begin: Annotated[str, Query(alias="from")] = "-24h",
    to: str = "now",
    step: Annotated[int | None, Query(ge=1, le=366 * 86_400)] = None,
) -> Response:
    manager = who.manager
    manager.registry.node(node_id)
    now = manager.clock.now()
    drawn = await manager.history.node(
        node_id, read_moment(begin, now, "from"), read_moment(to, now, "to"), step
    )
    return answer(
        model.NodeMetricsOut(
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
    **described(model.ClusterMetricsOut, errors=(422,)),
)
async def cluster_metrics(who: Reader, timeframe: str = "24h") -> Response:
    if timeframe not in TIMEFRAMES_S:
        raise InvalidField(
            f"timeframe must be one of {', '.join(TIMEFRAMES_S)}", field="timeframe"
        )
    drawn = await who.manager.history.cluster(timeframe)
    return answer(
        model.ClusterMetricsOut(
            timeframe=timeframe,
            from_=_time(drawn.span.begin),
            to=_time(drawn.span.end),
            step_s=drawn.span.step_s,
            metrics=_figures(drawn, cache_out(who.manager.caching.figures())),
            times=_times(drawn.span),
            nodes=drawn.nodes,
            series={
                name: model.ClusterSeriesOut(
                    _rounded(series.average), _rounded(series.maximum)
                )
                for name, series in drawn.series.items()
            },
            tasks=_tasks(drawn),
        )
    )


def _tasks(drawn: ClusterHistory) -> model.TaskSeriesOut:
    span = drawn.task_span
    steps = [drawn.task_steps.get(at, TaskStep(at)) for at in span.times]
    return model.TaskSeriesOut(
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


def _times(span: Span) -> list[datetime]:
    return [_time(at) for at in span.times]


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)


def _rounded(figures: Figures) -> list[float | None]:
    return [_round(value) for value in figures]


def _series(drawn: Mapping[str, Series]) -> dict[str, model.SeriesOut]:
    return {
        name: model.SeriesOut(
            _rounded(series.average),
            _rounded(series.maximum),
            model.TrendOut(_round(series.trend.per_hour), series.trend.full_at),
        )
        for name, series in drawn.items()
    }


def _gpu(gpu: Gpu, drawn: Mapping[str, Series]) -> model.GpuMetricsOut:
    return model.GpuMetricsOut(
        gpu.id,
        gpu.index,
        gpu.vendor,
        gpu.name,
        gpu.driver,
        gpu.memory_total_mb,
        _series(drawn),
    )


def _figures(drawn: ClusterHistory, cache: CacheOut) -> model.FiguresOut:
    tasks: TaskTotals = drawn.tasks
    judged = tasks.completed + tasks.failed
    response_s = tasks.response_s / tasks.completed if tasks.completed else None
    use = over_time(drawn.series["gpu_utilization_percent"])
    return model.FiguresOut(
        total_tasks=tasks.ended,
        successful_tasks=tasks.completed,
        failed_tasks=tasks.failed,
        success_rate=_round(tasks.completed / judged) if judged else None,
        average_response_time=_round(response_s),
        peak_throughput=round(tasks.busiest * 60 / MINUTES_S, _DIGITS),
        gpu_utilization=model.RangeOut(
            _round(use.average), _round(use.peak), _round(use.minimum)
        ),
        memory_usage=_memory(drawn.series, "memory"),
        gpu_memory_usage=_memory(drawn.series, "gpu_memory"),
        result_cache=cache,
    )


def _memory(series: Mapping[str, Series], name: str) -> model.MemoryOut:
    used = over_time(series[f"{name}_used_mb"])
    total = over_time(series[f"{name}_total_mb"]).average
    share = used.average / total if used.average is not None and total else None
    return model.MemoryOut(_round(used.average), _round(used.peak), _round(share))
