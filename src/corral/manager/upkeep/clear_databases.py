"""Empties the cluster of work: every task, dead letter, worker type and target.

Nodes, workers, apps and keys stay, and so does what history says of it all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from corral.core.tasks.job_type import JobType
from corral.core.tasks.outcome import Outcome, OutcomeKind
from corral.core.tasks.task import Task, TaskError
from corral.errors import StoreUnavailable
from corral.manager.context import ManagerContext
from corral.manager.tasks import Tasks
from corral.manager.upkeep.rescue import Rescue
from corral.manager.workers.registry import WorkerRegistry
from corral.store.base import Event

_BATCH = 1000
_PAUSES_S = (0.0, 0.0, 0.05, 0.2, 0.5, 1.0)
_WHY = TaskError("cancelled", "the databases were cleared")


class Clear:
    def __init__(
        self, ctx: ManagerContext, tasks: Tasks, workers: WorkerRegistry, rescue: Rescue
    ) -> None:
        self._cluster = ctx.cluster
        self._store = ctx.store
        self._settle = tasks.settle
        self._drop = tasks.drop
        self._record = ctx.record
        self._workers = workers
        self._rescue = rescue
        self._clock = ctx.clock

    async def clear(self, actor: str) -> Mapping[str, int]:
        """Cancel what lives, then delete; rows deleted by table.

        Everything accepted before the call is gone after it. What comes meanwhile
        stays, unless its job type went.

        Raises:
            StoreUnavailable: some of it may be left; call it again.
        """
        if self._cluster.is_dirty:
            # Rows must not vanish while memory does not know how they ended.
            await self._rescue.reconcile()
        cancelled = await self._cancel(list(self._cluster.tasks))
        gone = await self._clear()
        homeless = (t for t in self._cluster.tasks.values() if not self._is_known(t))
        await self._cancel([t.id for t in homeless])
        data = {"actor": actor, "cancelled": cancelled, **gone}
        title = f"the databases were cleared by {actor}"
        event = Event("databases_cleared", title, "warning", data=data)
        await self._record([event])
        return gone

    async def _clear(self) -> Mapping[str, int]:
        """What is saved while the store clears is not forgotten."""
        cluster, served = self._cluster, self._served()
        job_types, worker_types = dict(cluster.job_types), dict(cluster.worker_types)
        gone = await self._store.clear(cluster.term, served)
        for name, worker_type in worker_types.items():
            if cluster.worker_types.get(name) is worker_type:
                del cluster.worker_types[name]
        for name, job_type in job_types.items():
            if cluster.job_types.get(name) is job_type:
                cluster.drop_job_type(name)
        for job_type in served:
            if job_type.name not in cluster.job_types:
                cluster.set_job_type(job_type)
        await self._workers.ensure_job_types(t.name for t in self._served())
        return gone

    async def _cancel(self, ids: list[str]) -> int:
        """End these tasks, wherever they are; how many there were."""
        count = 0
        for pause_s in _PAUSES_S:
            left = [i for i in ids if i in self._cluster.tasks]
            if not left:
                return count
            # Some moved on in the same moment, or are still being stored.
            await asyncio.sleep(pause_s)
            due = [i for i in left if i not in self._cluster.unstored]
            for start in range(0, len(due), _BATCH):
                count += await self._cancel_batch(due[start : start + _BATCH])
        self._cluster.doubt()
        raise StoreUnavailable("some tasks are changing hands; try again")

    async def _cancel_batch(self, ids: Iterable[str]) -> int:
        tasks = [t for i in ids if (t := self._cluster.tasks.get(i)) is not None]
        ended = await self._settle.settle(
            Outcome(t.id, t.attempt, OutcomeKind.CANCELLED, error=_WHY) for t in tasks
        )
        for task in tasks:
            if task.id in ended and task.worker_id is not None:
                await self._drop(task)
        return len(ended)

    def _served(self) -> list[JobType]:
        """What workers brought stays, as plain as they brought it."""
        links = self._cluster.workers.values()
        names = {name for link in links for name in link.worker.spec.job_types}
        return [JobType(name, created_at=self._clock.now()) for name in sorted(names)]

    def _is_known(self, task: Task) -> bool:
        return task.spec.job_type in self._cluster.job_types
