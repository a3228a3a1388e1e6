"""Thins the readings of machines, and draws charts from what is kept of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from corral.core.insight.chart_series import (
    ReadingRetention,
    Series,
    charts,
    last_known,
    percent,
    plan,
)
from corral.core.insight.metric import (
    CLUSTER_METRICS,
    GPU_METRICS,
    MINUTES_S,
    NODE_METRICS,
    MetricSpan,
    MetricStep,
    TaskStep,
    TaskTotals,
)
from corral.core.insight.trend import trend
from corral.core.nodes.gpu import Gpu
from corral.manager.context import ManagerContext
from corral.store.base import MetricStore, Retention

TIMEFRAMES_S = {"1h": 3600, "24h": 86_400, "7d": 7 * 86_400, "30d": 30 * 86_400}
THIN_PERIOD_S = 60.0
# What of a machine can run full, and what it is full of.
_FULL = {"memory_used_mb": "memory_total_mb", "disk_used_gb": "disk_total_gb"}

Charts = Mapping[str, Series]


@dataclass(frozen=True, slots=True)
class NodeCharts:
    span: MetricSpan
    series: Charts
    gpus: Sequence[tuple[Gpu, Charts]]


@dataclass(frozen=True, slots=True)
class ClusterCharts:
    span: MetricSpan
    series: Charts
    nodes: Sequence[int | None]
    tasks: TaskTotals
    task_span: MetricSpan
    task_steps: Mapping[int, TaskStep]


class MetricCharts:
    """`step` thins; the rest reads."""

    def __init__(self, ctx: ManagerContext, keep: Retention, sample_s: float) -> None:
        self._store: MetricStore = ctx.store.metrics
        self._clock = ctx.clock
        self._kept = ReadingRetention(keep.samples_s, keep.minutes_s, sample_s)

    async def step(self) -> None:
        await self._store.roll_up(self._clock.now())

    async def node(
        self, node_id: str, begin: datetime, end: datetime, step_s: int | None = None
    ) -> NodeCharts:
        """How a machine and its cards did in that time.

        Raises:
            InvalidField: such a chart cannot be drawn.
        """
        span = plan(begin, end, step_s, self._clock.now(), self._kept)
        buckets = await self._store.node_history(node_id, span)
        raw = charts(NODE_METRICS, buckets, span)
        series = {
            name: _aimed(raw, name, span) for name in ("cpu_percent", "load_1m", *_FULL)
        }
        for name, total in _FULL.items():
            share = percent(raw[name], raw[total])
            series[name.split("_")[0] + "_percent"] = _with_trend(share, span, 100.0)
        for way in ("rx", "tx"):
            rates = raw[f"network_{way}_rate"]
            series[f"network_{way}_bytes_s"] = _with_trend(rates, span)
        cards = await self._store.gpu_history(node_id, span)
        drawn = [(gpu, _card(gpu, rows, span)) for gpu, rows in cards]
        return NodeCharts(span, series, drawn)

    async def cluster(self, timeframe: str) -> ClusterCharts:
        """How all machines together did, and their tasks."""
        now = self._clock.now()
        begin = datetime.fromtimestamp(
            now.timestamp() - TIMEFRAMES_S[timeframe], now.tzinfo
        )
        span = plan(begin, now, None, now, self._kept)
        buckets = await self._store.cluster_history(span)
        counts = {bucket.at: bucket.samples for bucket in buckets}
        # Whole steps of the counts, also the one that began before the time asked for.
        first = int(begin.timestamp()) // MINUTES_S * MINUTES_S
        steps = _task_span(span)
        told = await self._store.task_history(steps)
        return ClusterCharts(
            span,
            charts(CLUSTER_METRICS, buckets, span),
            [counts.get(at) for at in span.times],
            await self._store.task_totals(first, span.end + MINUTES_S),
            steps,
            {step.at: step for step in told},
        )


def _task_span(span: MetricSpan) -> MetricSpan:
    """The same time in steps that tasks are counted in, as many of them as fit."""
    step_s = -(-span.step_s // MINUTES_S) * MINUTES_S
    end = -(-span.end // step_s) * step_s
    return MetricSpan(span.begin // step_s * step_s, end, step_s)


def _aimed(raw: Charts, name: str, span: MetricSpan) -> Series:
    total = raw[_FULL[name]].average if name in _FULL else ()
    return _with_trend(raw[name], span, last_known(total))


def _with_trend(
    series: Series, span: MetricSpan, capacity: float | None = None
) -> Series:
    return replace(series, trend=trend(series.average, span, capacity))


def _card(gpu: Gpu, rows: Sequence[MetricStep], span: MetricSpan) -> Charts:
    drawn = charts(GPU_METRICS, rows, span)
    return {
        name: _with_trend(
            series, span, gpu.memory_total_mb if name == "memory_used_mb" else None
        )
        for name, series in drawn.items()
    }
