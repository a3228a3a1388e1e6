"""Job types, apps, nodes, workers and worker types: rows saved whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert

from corral.core.nodes.node import NodeRecord
from corral.core.nodes.worker import WorkerRecord
from corral.core.nodes.worker_type import WorkerType
from corral.core.tasks.app import App
from corral.core.tasks.job_type import JobType
from corral.store.postgres import rows as record
from corral.store.postgres.connection import ConnectionPool
from corral.store.tables.metrics import gone_workers
from corral.store.tables.registry import (
    apps,
    cluster_nodes,
    job_types,
    worker_types,
    workers,
)


@dataclass(frozen=True, slots=True)
class RegistryRows:
    _pool: ConnectionPool

    async def save_job_type(self, job_type: JobType) -> None:
        await self._pool.save(job_types, [record.job_type_row(job_type)])

    async def job_types(self) -> Sequence[JobType]:
        rows = await self._pool.mappings(select(job_types).order_by(job_types.c.name))
        return [record.job_type_of(row) for row in rows]

    async def delete_job_type(self, name: str) -> None:
        await self._pool.fetch(delete(job_types).where(job_types.c.name == name))

    async def save_app(self, app: App) -> None:
        await self._pool.save(apps, [record.app_row(app)])

    async def apps(self) -> Sequence[App]:
        rows = await self._pool.mappings(select(apps).order_by(apps.c.name))
        return [record.app_of(row) for row in rows]

    async def delete_app(self, name: str) -> None:
        await self._pool.fetch(delete(apps).where(apps.c.name == name))

    async def save_node(self, node: NodeRecord) -> None:
        await self._pool.save(cluster_nodes, [record.node_row(node)])

    async def delete_node(self, node_id: str) -> None:
        await self._pool.fetch(
            delete(cluster_nodes).where(cluster_nodes.c.id == node_id)
        )

    async def nodes(self) -> Sequence[NodeRecord]:
        rows = await self._pool.mappings(select(cluster_nodes).order_by("id"))
        return [record.node_of(row) for row in rows]

    async def save_workers(self, several: Sequence[WorkerRecord]) -> None:
        # In one order, always: two batches must not wait for each other's rows.
        rows = sorted(map(record.worker_row, several), key=itemgetter("id"))
        await self._pool.save(workers, rows)

    async def delete_worker(self, worker_id: str) -> None:
        gone = delete(workers).where(workers.c.id == worker_id)
        row = gone.returning(workers.c.id, workers.c.gpus).cte("gone")
        # Their cards are still asked for, by what ran there.
        had = select(row.c.id, row.c.gpus, func.now()).where(
            row.c.gpus.not_in(("", "0"))
        )
        into = insert(gone_workers).from_select(["id", "gpus", "at"], had)
        await self._pool.fetch(into.on_conflict_do_nothing())

    async def workers(self) -> Sequence[WorkerRecord]:
        rows = await self._pool.mappings(select(workers).order_by("id"))
        return [record.worker_of(row) for row in rows]

    async def save_worker_type(self, worker_type: WorkerType) -> None:
        await self._pool.save(worker_types, [record.worker_type_row(worker_type)])

    async def delete_worker_type(self, name: str) -> None:
        await self._pool.fetch(delete(worker_types).where(worker_types.c.name == name))

    async def worker_types(self) -> Sequence[WorkerType]:
        rows = await self._pool.mappings(select(worker_types).order_by("name"))
        return [record.worker_type_of(row) for row in rows]
