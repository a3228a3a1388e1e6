"""Deletes what is past its time, in batches small enough to disturb nobody; and all
that has ended, when asked to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Table,
    TextClause,
    bindparam,
    delete,
    func,
    insert,
    literal,
    select,
    text,
)

from corral.core.insight.event import ALERT
from corral.core.insight.metric import HOURS_S, MINUTES_S
from corral.core.tasks.job_type import JobType
from corral.core.tasks.task import TERMINAL
from corral.store.base import Retention
from corral.store.postgres import rows as record
from corral.store.postgres.access import read_chain, save_chain
from corral.store.postgres.audit_chain import cut
from corral.store.postgres.connection import ConnectionPool
from corral.store.postgres.metric_sql import FORGET_GPUS, OLD_GPU_ROWS
from corral.store.postgres.metrics import NO_WAIT, MetricRows
from corral.store.postgres.queues import check_lead
from corral.store.postgres.tasks.output import LogFolder
from corral.store.tables.events import audit, cluster_events
from corral.store.tables.metadata import Texts, Time
from corral.store.tables.metrics import (
    gone_workers,
    gpu_hours,
    gpu_minutes,
    gpu_resources,
    system_hours,
    system_minutes,
    system_resources,
    task_counts,
)
from corral.store.tables.registry import job_types, worker_types
from corral.store.tables.tasks import (
    LIVE,
    attempts,
    kept_trees,
    log_chunks,
    result_cache,
    tasks,
)

BATCH = 1000
# A first run over years of history goes on at the next call.
BATCHES = 200
_BUT_OPEN = f"and not (event_type = '{ALERT}' and resolved_at is null)"
END_OF_TIME = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PruneRows:
    _pool: ConnectionPool
    _log_folder: LogFolder | None
    _metrics: MetricRows
    _audit_key: bytes = b""

    async def old(self, now: datetime, keep: Retention) -> Counter[str]:
        """What is past its time; rows deleted by table."""
        gone: Counter[str] = Counter()
        await self._prune_tasks(now - timedelta(seconds=keep.tasks_s), gone)
        events_end = now - timedelta(seconds=keep.events_s)
        await self._prune_by_time(cluster_events, events_end, gone, _BUT_OPEN)
        await self._prune_metrics(now, keep, gone)
        await self._prune_audit(now - timedelta(seconds=keep.audit_s), gone)
        return gone

    async def _prune_tasks(self, end: datetime, gone: Counter[str]) -> None:
        """Walks from the oldest task on, and ends at the first one too young.

        Tasks are stored about in the order of their making, so no index on the time
        they ended is needed, whose upkeep every task would pay for.
        """
        needed = await self._dependencies()
        last = 0
        for _ in range(BATCHES):
            rows = await self._pool.fetch(
                select(tasks.c.seq, tasks.c.id, tasks.c.created_at)
                .where(tasks.c.seq > last)
                .order_by(tasks.c.seq)
                .limit(BATCH)
            )
            old = [row.id for row in rows if row.created_at < end]
            await self._delete_tasks(
                [id_ for id_ in old if id_ not in needed], end, gone
            )
            if len(rows) < BATCH or rows[-1].created_at >= end:
                return
            last = rows[-1].seq

    async def _dependencies(self) -> set[str]:
        """Tasks whose results somebody still waits for."""
        rows = await self._pool.fetch(
            select(func.unnest(tasks.c.depends_on)).where(text(LIVE)).distinct()
        )
        return {row[0] for row in rows}

    async def _delete_tasks(
        self, ids: Sequence[str], end: datetime, gone: Counter[str]
    ) -> None:
        if not ids:
            return
        async with self._pool.begin() as connection:
            # Checked again here: one of them may have been requeued meanwhile.
            ended = tasks.c.state.in_([str(state) for state in TERMINAL])
            deleted = await connection.execute(
                delete(tasks)
                .where(_any(tasks.c.id, ids), ended, tasks.c.finished_at < end)
                .returning(tasks.c.id)
            )
            dead = list(deleted.scalars())
            gone["tasks"] += len(dead)
            for table in (attempts, log_chunks, kept_trees):
                result = await connection.execute(
                    delete(table).where(_any(table.c.task_id, dead))
                )
                gone[table.name] += result.rowcount
        if self._log_folder is not None:
            await self._log_folder.remove(dead)

    async def _prune_metrics(
        self, now: datetime, keep: Retention, gone: Counter[str]
    ) -> None:
        """Only what is thinned already goes, however long that was not done."""
        marks = await self._metrics.metric_marks()
        ends = []
        for kept_s, step_s in ((keep.samples_s, MINUTES_S), (keep.minutes_s, HOURS_S)):
            mark = datetime.fromtimestamp(marks.get(step_s, 0), UTC)
            ends.append(min(now - timedelta(seconds=kept_s), mark))
        ends.append(now - timedelta(seconds=keep.hours_s))
        nodes = (system_resources, system_minutes, system_hours)
        cards = (gpu_resources, gpu_minutes, gpu_hours)
        for node_table, card_table, end in zip(nodes, cards, ends, strict=True):
            await self._prune_by_time(node_table, end, gone)
            oldest = OLD_GPU_ROWS.format(table=card_table.name, batch=BATCH)
            await self._prune_batches(card_table, text(oldest), end, gone)
        await self._prune_by_time(task_counts, ends[-1], gone)
        await self._prune_by_time(gone_workers, ends[-1], gone)
        idle = text(FORGET_GPUS).bindparams(
            bindparam("end", now - timedelta(days=1), type_=Time)
        )
        await self._pool.fetch(idle)

    async def _prune_by_time(
        self, table: Table, end: datetime, gone: Counter[str], but: str = ""
    ) -> None:
        # By place: the keys of these tables are wide, and the oldest rows lie together.
        oldest = text(
            f"delete from {table.name} where ctid = any(array("
            f"select ctid from {table.name} where at < :end {but} limit {BATCH}))"
        )
        await self._prune_batches(table, oldest, end, gone)

    async def _prune_batches(
        self, table: Table, oldest: TextClause, end: datetime, gone: Counter[str]
    ) -> None:
        deletion = oldest.bindparams(bindparam("end", end, type_=Time))
        for _ in range(BATCHES):
            async with self._pool.begin() as connection:
                await connection.execute(NO_WAIT)
                result = await connection.execute(deletion)
            gone[table.name] += result.rowcount
            if result.rowcount < BATCH:
                return

    async def _prune_audit(self, end: datetime, gone: Counter[str]) -> None:
        for _ in range(BATCHES):
            async with self._pool.begin() as connection:
                chain = await read_chain(connection)
                rows = await connection.execute(
                    select(audit.c.seq, audit.c.hash, audit.c.at)
                    .order_by(audit.c.seq)
                    .limit(BATCH)
                )
                old = _prefix(rows.all(), end)
                if not old:
                    return
                last = old[-1]
                await connection.execute(delete(audit).where(audit.c.seq <= last.seq))
                left = cut(chain, last.seq, last.hash, self._audit_key)
                await save_chain(connection, left)
            gone["audit"] += len(old)

    async def ended(self, gone: Counter[str]) -> None:
        """All tasks that have ended, with all of theirs."""
        tasks = -1
        # A call of it walks a part of a long history only.
        while gone["tasks"] > tasks:
            tasks = gone["tasks"]
            await self._prune_tasks(END_OF_TIME, gone)

    async def registered(self, term: int, keep: Sequence[JobType]) -> Counter[str]:
        """What was registered to run tasks: of job types only `keep` is left."""
        gone: Counter[str] = Counter()
        async with self._pool.begin() as connection:
            await check_lead(connection, term)
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


def _prefix(rows: Sequence[Any], end: datetime) -> Sequence[Any]:
    """Only from the front: the chain must stay in one piece."""
    young = next((i for i, row in enumerate(rows) if row.at >= end), len(rows))
    return rows[:young]


def _any(column: ColumnElement[str], values: Sequence[str]) -> ColumnElement[bool]:
    return column == func.any(literal(list(values), Texts))
