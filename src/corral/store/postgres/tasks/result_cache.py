"""Results kept to answer the same question again: looked up by key, many at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Double, Integer, bindparam, delete, func, select, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.sql.elements import TextClause

from corral.core.tasks.result_cache import KeptResult, KeptTotal
from corral.store.postgres.connection import ConnectionPool, WriterLane
from corral.store.tables.metadata import Texts, Time
from corral.store.tables.tasks import result_cache

FIND = """
select key, job_type, task_id, result, made_at, maker
from result_cache where key = any($1::text[])
"""
# Rows are locked in the order of the keys, here and in SAVE, so that nobody waits in a
# circle.
USE = """
update result_cache c set used_at = u.used_at
from unnest(:keys, :times) as u(key, used_at) where c.key = u.key
"""
SAVE = """
with old as (
    select c.key, c.size from unnest(cast(:keys as text[])) as k(key)
    join result_cache c on c.key = k.key
),
saved as (
    insert into result_cache
        (key, job_type, task_id, result, maker, size, made_at, used_at)
    select *, cast(:now as timestamptz)
    from unnest(:keys, :job_types, :task_ids, :results, :makers, :sizes, :times)
    on conflict (key) do update set task_id = excluded.task_id,
        result = excluded.result, maker = excluded.maker, size = excluded.size,
        made_at = excluded.made_at, used_at = excluded.used_at
)
select key, size from old
"""
PRUNE = """
delete from result_cache c where not exists (
    select from unnest(:job_types, :times) as t(job_type, since)
    where t.job_type = c.job_type and c.made_at >= t.since
)
"""
TRIM = """
delete from result_cache where key in (
    select key from (
        select key, sum(size) over (order by used_at desc, key) as total
        from result_cache
    ) as ordered where total > :most
)
"""
_TYPES: dict[str, Any] = {
    **dict.fromkeys(("keys", "job_types", "task_ids", "results", "makers"), Texts),
    "sizes": ARRAY(Integer),
    "times": ARRAY(Time),
    "now": Time,
    "most": Double,
}


@dataclass(frozen=True, slots=True)
class ResultRows:
    _pool: ConnectionPool
    _lookups: WriterLane

    async def save_results(
        self, rows: Sequence[KeptResult], now: datetime
    ) -> Mapping[str, int]:
        if not rows:
            return {}
        rows = sorted(rows, key=lambda row: row.key)
        told = await self._pool.fetch(
            _typed(
                SAVE,
                keys=[row.key for row in rows],
                job_types=[row.job_type for row in rows],
                task_ids=[row.task_id for row in rows],
                results=[row.result for row in rows],
                makers=[row.maker for row in rows],
                sizes=[row.size for row in rows],
                times=[row.made_at for row in rows],
                now=now,
            )
        )
        return {row.key: row.size for row in told}

    async def find_results(self, keys: Sequence[str]) -> Mapping[str, KeptResult]:
        if not keys:
            return {}
        rows = await self._lookups.fetch(FIND, list(keys))
        return {row[0]: KeptResult(*row) for row in rows}

    async def use_results(self, used: Mapping[str, datetime]) -> None:
        if used:
            keys = sorted(used)
            await self._pool.fetch(
                _typed(USE, keys=keys, times=[used[key] for key in keys])
            )

    async def kept_results(self) -> Mapping[str, KeptTotal]:
        kind = result_cache.c.job_type
        sums = select(kind, func.count(), func.sum(result_cache.c.size)).group_by(kind)
        return {
            row[0]: KeptTotal(row[1], int(row[2]))
            for row in await self._pool.fetch(sums)
        }

    async def clear_results(self, job_type: str) -> int:
        of_type = delete(result_cache).where(result_cache.c.job_type == job_type)
        return len(await self._pool.fetch(of_type.returning(result_cache.c.key)))

    async def prune_results(self, since: Mapping[str, datetime]) -> int:
        told = {"job_types": list(since), "times": list(since.values())}
        return await self._delete(_typed(PRUNE, **told))

    async def trim_results(self, limit_bytes: int) -> int:
        return await self._delete(_typed(TRIM, most=float(limit_bytes)))

    async def _delete(self, statement: TextClause) -> int:
        async with self._pool.begin() as connection:
            return (await connection.execute(statement)).rowcount


def _typed(statement: str, **values: Any) -> TextClause:
    return text(statement).bindparams(
        *(bindparam(name, value, type_=_TYPES[name]) for name, value in values.items())
    )
