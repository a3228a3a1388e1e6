"""Job types, nodes, workers, keys, shares, learned figures: tables saved whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import cache
from operator import itemgetter
from typing import Any

from sqlalchemy import Table, bindparam, delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import Insert, insert

from corral.core.access.key import Key
from corral.core.access.secret import Secret
from corral.core.access.share import Share, ShareUse
from corral.core.insight.learned import Learned
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
    keys,
    learned,
    secrets,
    share_uses,
    shares,
    worker_types,
    workers,
)

_FIGURES = ("count", "value", "spread", "middle", "sole", "at")
Subject = tuple[str, str, str, int, str]


class RegistryRows:
    _pool: ConnectionPool

    async def save_job_type(self, job_type: JobType) -> None:
        await self._save(job_types, record.job_type_row(job_type))

    async def job_types(self) -> Sequence[JobType]:
        rows = await self._pool.mappings(select(job_types).order_by(job_types.c.name))
        return [record.job_type_of(row) for row in rows]

    async def delete_job_type(self, name: str) -> None:
        await self._pool.fetch(delete(job_types).where(job_types.c.name == name))

    async def save_app(self, app: App) -> None:
        await self._save(apps, record.app_row(app))

    async def apps(self) -> Sequence[App]:
        rows = await self._pool.mappings(select(apps).order_by(apps.c.name))
        return [record.app_of(row) for row in rows]

    async def delete_app(self, name: str) -> None:
        await self._pool.fetch(delete(apps).where(apps.c.name == name))

    async def save_node(self, node: NodeRecord) -> None:
        await self._save(cluster_nodes, record.node_row(node))

    async def delete_node(self, node_id: str) -> None:
        await self._pool.fetch(
            delete(cluster_nodes).where(cluster_nodes.c.id == node_id)
        )

    async def nodes(self) -> Sequence[NodeRecord]:
        rows = await self._pool.mappings(select(cluster_nodes).order_by("id"))
        return [record.node_of(row) for row in rows]

    async def save_worker(self, worker: WorkerRecord) -> None:
        await self._save(workers, record.worker_row(worker))

    async def save_workers(self, several: Sequence[WorkerRecord]) -> None:
        if several:
            # In one order, always: two batches must not wait for each other's rows.
            rows = sorted(map(record.worker_row, several), key=itemgetter("id"))
            await self._save(workers, *rows)

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
        await self._save(worker_types, record.worker_type_row(worker_type))

    async def delete_worker_type(self, name: str) -> None:
        await self._pool.fetch(delete(worker_types).where(worker_types.c.name == name))

    async def worker_types(self) -> Sequence[WorkerType]:
        rows = await self._pool.mappings(select(worker_types).order_by("name"))
        return [record.worker_type_of(row) for row in rows]

    async def save_key(self, key: Key) -> None:
        await self._save(keys, record.key_row(key))

    async def keys(self) -> Sequence[Key]:
        rows = await self._pool.mappings(select(keys).order_by(keys.c.id))
        return [record.key_of(row) for row in rows]

    async def save_secret(self, secret: Secret) -> None:
        await self._save(secrets, record.secret_row(secret))

    async def delete_secret(self, name: str) -> None:
        await self._pool.fetch(delete(secrets).where(secrets.c.name == name))

    async def secrets(self) -> Sequence[Secret]:
        rows = await self._pool.mappings(select(secrets).order_by(secrets.c.name))
        return [record.secret_of(row) for row in rows]

    async def use_key(self, key_id: str, now: datetime) -> bool:
        spent = await self._pool.fetch(
            update(keys)
            .where(
                keys.c.id == key_id,
                keys.c.revoked_at.is_(None),
                or_(keys.c.expires_at.is_(None), keys.c.expires_at > now),
                or_(keys.c.uses_left.is_(None), keys.c.uses_left > 0),
            )
            .values(uses_left=keys.c.uses_left - 1)
            .returning(keys.c.id)
        )
        return bool(spent)

    async def stamp_keys(self, used: Mapping[str, datetime]) -> None:
        if used:
            statement = update(keys).where(keys.c.id == bindparam("of"))
            rows = [{"of": key_id, "at": at} for key_id, at in sorted(used.items())]
            await self._pool.fetch(statement.values(last_used_at=bindparam("at")), rows)

    async def _save(self, table: Table, *rows: dict[str, Any]) -> None:
        await self._pool.fetch(_upsert(table), rows)


@cache
def _upsert(table: Table) -> Insert:
    """Made once: when many nodes start together, making it costs more than the rest."""
    statement = insert(table)
    rest = [c.name for c in table.columns if not c.primary_key]
    return statement.on_conflict_do_update(
        index_elements=list(table.primary_key),
        set_={name: statement.excluded[name] for name in rest},
    )


# Shares of the cluster, and what each has used of a day.


class ShareRows:
    _pool: ConnectionPool

    async def save_share(self, share: Share) -> None:
        statement = insert(shares).values(asdict(share))
        rest = [c.name for c in shares.columns if not c.primary_key]
        await self._pool.fetch(
            statement.on_conflict_do_update(
                index_elements=["name"],
                set_={name: statement.excluded[name] for name in rest},
            )
        )

    async def delete_share(self, name: str) -> None:
        await self._pool.fetch(delete(shares).where(shares.c.name == name))

    async def shares(self) -> Sequence[Share]:
        rows = await self._pool.mappings(select(shares).order_by(shares.c.name))
        return [Share(**row) for row in rows]

    async def save_share_uses(self, uses: Sequence[ShareUse]) -> None:
        async with self._pool.begin() as connection:
            await connection.execute(delete(share_uses))
            if uses:
                await connection.execute(
                    insert(share_uses), [asdict(use) for use in uses]
                )

    async def share_uses(self) -> Sequence[ShareUse]:
        rows = await self._pool.mappings(select(share_uses).order_by(share_uses.c.name))
        return [ShareUse(**row) for row in rows]


# What was learned of tasks and workers, kept from one start to the next.


def subject_of(row: Learned) -> Subject:
    """What a figure is of: there is one of each."""
    return row.kind, row.job_type, row.model, row.units, row.worker_id


class LearnedRows:
    _pool: ConnectionPool

    async def save_learned(self, rows: Sequence[Learned], at: datetime) -> None:
        if not rows:
            return
        statement = insert(learned)
        # In one order, always: two batches must not wait for each other's rows.
        values = [asdict(row) | {"at": at} for row in sorted(rows, key=subject_of)]
        await self._pool.fetch(
            statement.on_conflict_do_update(
                index_elements=list(learned.primary_key),
                set_={name: statement.excluded[name] for name in _FIGURES},
            ),
            values,
        )

    async def learned(self, limit: int) -> Sequence[Learned]:
        latest = select(learned).order_by(learned.c.at.desc()).limit(limit)
        rows = await self._pool.mappings(latest)
        found = [
            Learned(**{name: row[name] for name in Learned.__slots__}) for row in rows
        ]
        return sorted(found, key=subject_of)

    async def forget_learned(self, before: datetime) -> None:
        await self._pool.fetch(delete(learned).where(learned.c.at < before))
