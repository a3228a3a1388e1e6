"""Loads models before anybody asks for them, when the scheduler says that it pays.

Beside the work, never in its way: it is asked for only while nothing waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from corral.core.tasks.task import PRIORITY_WORDS
from corral.errors import CorralError
from corral.manager.clock import Clock
from corral.manager.cluster.state import Cluster
from corral.manager.feature import Loop
from corral.manager.models.memory import Models

_PERIOD_S = 0.2
OWNER = "corral.prefetch"
_LOW = PRIORITY_WORDS["low"]

log = logging.getLogger(__name__)


class Prefetching:
    def __init__(self, cluster: Cluster, models: Models, clock: Clock) -> None:
        self._cluster = cluster
        self._models = models
        self._clock = clock

    def loop(self, on_deposed: Callable[[], None]) -> Loop:
        return Loop("prefetching", _PERIOD_S, self.step, on_deposed)

    async def step(self) -> None:
        """Ask for the loads that are due."""
        now = self._clock.now().timestamp()
        for load in self._cluster.scheduler.prefetch(now).loads:
            try:
                await self._models.assign(
                    load.model, [load.worker_id], priority=_LOW, by=OWNER
                )
            except CorralError as e:
                # It is missed by nobody yet; a task that wants it loads it.
                log.warning("prefetch of %s: %s", load.model, e.message)
