"""Figures for people and for Prometheus, and the journal of decisions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime

import psutil

from corral import __version__
from corral.core.insight.usage import UsageBy, UsageSpan, UsageStep
from corral.manager.context import ManagerContext
from corral.manager.feature import Feature, Loop
from corral.manager.insight.charts import THIN_PERIOD_S, MetricCharts
from corral.manager.insight.journal import Journal, journal_of
from corral.manager.insight.overview import ClusterOverview, overview_of
from corral.manager.prometheus import Count, Gauge, Labels, MetricFamily
from corral.store.base import Retention


class Insight(Feature):
    def __init__(self, ctx: ManagerContext, keep: Retention, sample_s: float) -> None:
        self._ctx = ctx
        self._cluster = ctx.cluster
        self._tracing = ctx.tracing
        self.charts = MetricCharts(ctx, keep, sample_s)

    def loops(self) -> Sequence[Loop]:
        thin = Loop("thin", THIN_PERIOD_S, self.charts.step)
        return (thin, *self._tracing.loops())

    async def close(self) -> None:
        await self._tracing.close()

    def journal(self) -> Journal:
        """What the scheduler was told and decided.

        Raises:
            Conflict: this manager keeps no journal.
        """
        return journal_of(self._cluster.scheduler)

    def journal_since(self, since_s: float) -> Iterator[bytes]:
        """Its lines of at least the last so many seconds; raises Conflict."""
        since = self._ctx.clock.now().timestamp() - since_s
        return self.journal().lines(since)

    async def overview(self, started_at: datetime, health: str) -> ClusterOverview:
        return await overview_of(self._ctx, started_at, health)

    async def usage(
        self, by: UsageBy, label: str, span: UsageSpan
    ) -> Sequence[UsageStep]:
        """What tasks used of GPUs, by owner, job type or label."""
        return await self._ctx.store.metrics.usage(by, label, span)

    def counters(self) -> Iterator[MetricFamily]:
        """What was counted since the manager began."""
        yield from self._ctx.counters.families()

    def gauges(self) -> Iterator[MetricFamily]:
        version: dict[Labels, float | None] = {(__version__,): 1}
        yield Gauge(
            "corral_build_info", "Which version this is.", version, ("version",)
        )
        process = psutil.Process(os.getpid())
        with process.oneshot():
            times = process.cpu_times()
            resident, began = process.memory_info().rss, process.create_time()
        yield Count(
            "process_cpu_seconds_total",
            "Processor time of the manager.",
            times.user + times.system,
        )
        yield Gauge("process_resident_memory_bytes", "Memory of the manager.", resident)
        yield Gauge("process_start_time_seconds", "When the manager began.", began)
