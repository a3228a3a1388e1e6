"""Deletes all ended tasks and what was registered to run them, when asked to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from sqlalchemy import delete, insert, select

from corral.core.tasks.job_type import JobType
from corral.errors import NotLeader
from corral.store import record
from corral.store.prune import Prune
from corral.store.schema import job_types, leadership, result_cache, worker_types

END_OF_TIME = datetime.max.replace(tzinfo=UTC)


class Clear(Prune):
    async def clear(self, term: int, keep: Sequence[JobType]) -> Mapping[str, int]:
        gone = await self._clear_registry(term, keep)
        tasks = -1
        # A call of it walks a part of a long history only.
        while gone["tasks"] > tasks:
            tasks = gone["tasks"]
            await self._prune_tasks(END_OF_TIME, gone)
        return {table: count for table, count in gone.items() if count}

    async def _clear_registry(self, term: int, keep: Sequence[JobType]) -> Counter[str]:
        gone: Counter[str] = Counter()
        async with self._pool.begin() as connection:
            lead = select(leadership.c.term).with_for_update(read=True)
            current = (await connection.execute(lead)).scalar_one_or_none() or 0
            if current != term:
                raise NotLeader(
                    f"term {term} is over, the current one is {current}", term=current
                )
            rows = [record.job_type_row(job_type) for job_type in keep]
            other = job_types.c.name.not_in([row["name"] for row in rows])
            result = await connection.execute(delete(worker_types))
            gone["worker_types"] = result.rowcount
            result = await connection.execute(delete(job_types).where(other))
            gone["job_types"] = result.rowcount
            await connection.execute(delete(job_types))
            await connection.execute(delete(result_cache))
            if rows:
                await connection.execute(insert(job_types), rows)
        return gone
