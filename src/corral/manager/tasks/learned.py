"""Keeps what the scheduler learns: a manager that begins anew goes on from there.

What is learned, and how, is `scheduler/learn/estimate.py`.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta

from corral.core.insight.learned import SPEED
from corral.errors import StoreUnavailable
from corral.manager.context import ManagerContext
from corral.manager.feature import Loop
from corral.scheduler.events import Recalled
from corral.store.base import MetricStore

_PERIOD_S = 30.0
MOST = 20_000
"""So many figures are taken up at most, the latest."""
_KEEP = timedelta(days=365)


class LearnedFigures:
    def __init__(self, ctx: ManagerContext) -> None:
        self._cluster = ctx.cluster
        self._store: MetricStore = ctx.store.metrics
        self._clock = ctx.clock

    async def load(self) -> None:
        """Take up what the store has, before workers are told of."""
        await self._store.forget_learned(self._clock.now() - _KEEP)
        rows = await self._store.learned(MOST)
        known = tuple(
            row
            for row in rows
            if row.kind != SPEED or row.worker_id in self._cluster.workers
        )
        if known:
            self._cluster.scheduler.apply(Recalled(known))

    def loop(self) -> Loop:
        return Loop("learned figures", _PERIOD_S, self.step)

    async def close(self) -> None:
        with contextlib.suppress(StoreUnavailable):
            await self.step()

    async def step(self) -> None:
        """Keep what was learned since the last time.

        Of what a write that fails had, the next run of its kind tells again.
        """
        rows = self._cluster.scheduler.learned()
        if rows:
            await self._store.save_learned(rows, self._clock.now())
