"""Job types, shares and schedules."""

from __future__ import annotations

from collections.abc import Sequence

from corral.manager.access import Access
from corral.manager.context import ManagerContext
from corral.manager.feature import Feature, Loop
from corral.manager.queues.job_types import JobTypes
from corral.manager.queues.schedules import Schedules
from corral.manager.queues.shares import ClusterShares
from corral.manager.tasks import Tasks
from corral.manager.workers import Workers
from corral.store.base import RegistryStore


class Queues(Feature):
    def __init__(
        self, ctx: ManagerContext, tasks: Tasks, workers: Workers, access: Access
    ) -> None:
        self._cluster = ctx.cluster
        self._store: RegistryStore = ctx.store.registry
        self.job_types = JobTypes(ctx, tasks, workers.registry)
        self.shares = ClusterShares(ctx, tasks.dispatch)
        self.schedules = Schedules(ctx, tasks, access.keys)

    async def load(self) -> None:
        for job_type in await self._store.job_types():
            self._cluster.set_job_type(job_type)
        await self.shares.load()

    async def open(self) -> None:
        await self.schedules.load()

    def loops(self) -> Sequence[Loop]:
        return (self.shares.loop(), Loop("schedules", 1.0, self.schedules.step))
