"""Alerts: what is wrong, and who is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from corral.manager.alerts.alerts import PERIOD_S, AlertConfig, AlertWatch
from corral.manager.alerts.delivery import AlertNotices
from corral.manager.context import ManagerContext
from corral.manager.feature import Feature, Loop
from corral.manager.outbound.webhook import NotifyConfig
from corral.manager.prometheus import Gauge, MetricFamily

_SEVERITIES = ("info", "warning", "error", "critical")


class Alerts(Feature):
    """The look at the cluster, and who is told of what it finds."""

    def __init__(
        self, ctx: ManagerContext, config: AlertConfig, hooks: NotifyConfig
    ) -> None:
        # A setting names these receivers: they may be inside.
        reach = replace(hooks.reach, is_exposed=False, is_private_listed=False)
        hooks = replace(hooks, reach=reach)
        self.notices = AlertNotices(ctx, hooks, config.webhooks)
        self.watch = AlertWatch(ctx, config, self.notices.ring)
        self._is_anybody_told = bool(config.webhooks)

    async def open(self) -> None:
        if self._is_anybody_told:
            # Before the first alert: a receiver is told of all that comes.
            await self.notices.open()

    def loops(self) -> Sequence[Loop]:
        loops = [Loop("alerts", PERIOD_S, self.watch.step)]
        if self._is_anybody_told:
            loops.append(Loop("alert notices", 0.1, self.notices.step))
        return loops

    async def close(self) -> None:
        await self.notices.close()

    def gauges(self) -> Iterator[MetricFamily]:
        reasons = self.watch.health().reasons
        standing = Counter(str(reason.finding.severity) for reason in reasons)
        yield Gauge(
            "corral_alerts",
            "Alerts that are open.",
            {(name,): standing[name] for name in _SEVERITIES},
            ("severity",),
        )
