"""Schedules, shares and notices in PostgreSQL: small tables beside those of tasks.

Notices are made by the statements that store and requeue tasks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import delete, insert, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from corral.core.access.share import Share, ShareUse
from corral.core.tasks.options import SpecOptions
from corral.core.tasks.schedule import MissedPolicy, OverlapPolicy, Schedule
from corral.core.tasks.task import Overlap, TaskSpec
from corral.core.tasks.webhook import Notice
from corral.store.postgres.connection import ConnectionPool
from corral.store.postgres.errors import check_term
from corral.store.postgres.rows import plain_options
from corral.store.tables.registry import (
    leadership,
    notices,
    schedules,
    share_uses,
    shares,
)
from corral.store.text import clean, clean_or_none, is_storable

_PLAIN = ("name", "cron", "timezone", "deadline_s", "next_at", "last_at")
_MORE = ("last_task_id", "created_at")
_SPEC = ("job_type", "payload", "priority", "model", "timeout_s", "retries", "owner")


@dataclass(frozen=True, slots=True)
class QueueRows:
    _pool: ConnectionPool

    async def save_schedule(self, schedule: Schedule) -> None:
        await self._pool.save(schedules, [schedule_row(schedule)])

    async def delete_schedule(self, name: str) -> None:
        await self._pool.fetch(delete(schedules).where(schedules.c.name == clean(name)))

    async def schedules(self) -> Sequence[Schedule]:
        rows = await self._pool.mappings(select(schedules).order_by(schedules.c.name))
        return [schedule_of(row) for row in rows]

    async def advance_schedules(
        self, term: int, moves: Sequence[tuple[datetime, Schedule]]
    ) -> set[str]:
        moved: set[str] = set()
        async with self._pool.begin() as connection:
            await check_lead(connection, term)
            for planned, schedule in moves:
                row = schedule_row(schedule)
                names = ("next_at", "last_at", "last_task_id", "note")
                result = await connection.execute(
                    update(schedules)
                    .where(schedules.c.name == row["name"])
                    .where(schedules.c.next_at == planned)
                    .values({name: row[name] for name in names})
                )
                if result.rowcount:
                    moved.add(schedule.name)
        return moved

    async def save_share(self, share: Share) -> None:
        await self._pool.save(shares, [asdict(share)])

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

    async def notices(self, task_ids: Sequence[str] | None = None) -> Sequence[Notice]:
        query = select(notices).order_by(notices.c.task_id, notices.c.url)
        if task_ids is not None:
            ids = list(filter(is_storable, task_ids))
            query = query.where(notices.c.task_id.in_(ids))
        rows = await self._pool.mappings(query)
        return [Notice(**row) for row in rows]

    async def save_notice(self, notice: Notice) -> None:
        await self._pool.fetch(
            update(notices)
            .where(notices.c.task_id == notice.task_id, notices.c.url == notice.url)
            .where(notices.c.run == notice.run)
            .values(tries=notice.tries, since=notice.since, due=notice.due)
        )

    async def drop_notices(self, told: Sequence[Notice]) -> None:
        place = tuple_(notices.c.task_id, notices.c.url, notices.c.run)
        rows = [(n.task_id, n.url, n.run) for n in told]
        await self._pool.fetch(delete(notices).where(place.in_(rows)))


async def check_lead(connection: AsyncConnection, term: int) -> None:
    """Holds the lead until the transaction ends, or raises NotLeader."""
    lead = select(leadership.c.term).with_for_update(read=True)
    check_term(term, (await connection.execute(lead)).scalar_one_or_none() or 0)


def schedule_row(schedule: Schedule) -> dict[str, Any]:
    spec = schedule.task
    task = {name: getattr(spec, name) for name in _SPEC}
    task |= {"labels": dict(spec.labels), "overlap": str(spec.overlap)}
    task["options"] = plain_options(spec.options)
    return {
        **{name: getattr(schedule, name) for name in (*_PLAIN, *_MORE)},
        "task": json.dumps(task),
        "missed": str(schedule.missed),
        "overlap": str(schedule.overlap),
        "note": clean_or_none(schedule.note),
    }


def schedule_of(row: Mapping[str, Any]) -> Schedule:
    task = json.loads(row["task"])
    task["overlap"] = Overlap(task["overlap"])
    task["options"] = msgspec.convert(task["options"], SpecOptions)
    return Schedule(
        **{name: row[name] for name in (*_PLAIN, *_MORE, "note")},
        task=TaskSpec(id="", **task),
        missed=MissedPolicy(row["missed"]),
        overlap=OverlapPolicy(row["overlap"]),
    )
