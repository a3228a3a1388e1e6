"""Alerts as a whole: the look at the cluster, and who is told of what it finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from corral.manager.alerts.alerts import PERIOD_S, AlertConfig, AlertWatch
from corral.manager.alerts.delivery import AlertNotices
from corral.manager.alerts.snapshot import HealthSnapshot
from corral.manager.clock import Clock
from corral.manager.feature import Loop
from corral.manager.outbound.webhook import NotifyConfig
from corral.store.base import Store


class Alerts:
    """`open` gives the loops to run; `close` after them."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        picture: HealthSnapshot,
        config: AlertConfig,
        hooks: NotifyConfig,
    ) -> None:
        # These URLs are an administrator's, not a caller's: they need not be on the
        # list of what callers may reach, but what nobody may reach stays refused.
        reach = replace(hooks.reach, is_exposed=False)
        hooks = replace(hooks, reach=reach)
        self.notices = AlertNotices(store, clock, hooks, config.webhooks)
        self.alerting = AlertWatch(store, clock, picture, config, self.notices.ring)
        self._is_anybody_told = bool(config.webhooks)

    async def open(self, on_deposed: Callable[[], None]) -> list[Loop]:
        loops = [Loop("alerting", PERIOD_S, self.alerting.step, on_deposed)]
        if self._is_anybody_told:
            # Before the first alert: a receiver is told of all that comes.
            await self.notices.open()
            loops.append(Loop("alert notices", 0.1, self.notices.step, on_deposed))
        return loops

    async def close(self) -> None:
        await self.notices.close()
