"""Events, alerts among them, and how far their readers have come."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Text,
    bindparam,
    cast,
    func,
    insert,
    literal,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from corral.core.insight.event import ALERT, Event, EventPage, EventQuery
from corral.store.postgres import rows as record
from corral.store.postgres.connection import ConnectionPool
from corral.store.tables.events import (
    NOT_OF_TASKS,
    cluster_events,
    cursors,
)
from corral.store.tables.metadata import Texts, Time
from corral.store.tables.tasks import tasks
from corral.store.text import clean

_columns = cluster_events.c
# As the partial index has it, so that rows of other types are not looked at.
_IS_ALERT = _columns.event_type == literal_column(f"'{ALERT}'")
_IS_OPEN = _columns.resolved_at.is_(None)
# Events of a task are looked for while it lived, give or take the clocks of two
# leaders: an index over every id in every event would cost more than the events.
_SLACK = timedelta(minutes=5)
_ALWAYS: ColumnElement[datetime] = literal_column("'infinity'::timestamptz")
_GAP_POLL_S = 0.005
_GAP_POLLS = 100
Found = Sequence[Mapping[str, Any]]


def chosen(where: EventQuery) -> list[ColumnElement[bool]]:
    """What a filter asks for, but for its task."""
    wanted: list[ColumnElement[bool]] = []
    if where.event_types:
        wanted.append(_columns.event_type.in_([clean(t) for t in where.event_types]))
    if where.severities:
        wanted.append(_columns.severity.in_([clean(s) for s in where.severities]))
    if where.node_id is not None:
        wanted.append(_columns.source_node_id == clean(where.node_id))
    if where.is_open is not None:
        wanted.append(_IS_OPEN if where.is_open else ~_IS_OPEN)
    if not where.with_tasks:
        wanted.append(text(NOT_OF_TASKS))  # type: ignore[arg-type]
    return wanted


@dataclass(frozen=True, slots=True)
class EventRows:
    _pool: ConnectionPool

    async def add_events(self, events: Sequence[Event]) -> None:
        if not events:
            return
        # A parameter may not have the column's own name.
        moment = func.coalesce(bindparam("moment", type_=Time), func.now())
        rows = [record.event_row(event) for event in events]
        await self._pool.fetch(
            insert(cluster_events).values(at=moment),
            [{**row, "moment": row.pop("at")} for row in rows],
        )

    async def events(self, after_seq: int = 0, limit: int = 100) -> Sequence[Event]:
        found = await self._read_events(after_seq, limit, ())
        if after_seq > 0:
            found = await self._without_gap(after_seq, limit, found)
        return [record.event_of(row) for row in found]

    async def event_page(
        self, where: EventQuery, after_seq: int = 0, limit: int = 100
    ) -> EventPage:
        end = await self._settled_end(after_seq)
        if 0 < end <= after_seq:
            return EventPage((), after_seq)
        wanted = [cluster_events.c.seq <= end, *chosen(where)]
        if where.task_id is not None:
            wanted += _lifetime(clean(where.task_id))
        found = await self._read_events(after_seq, limit, wanted)
        is_cut = after_seq > 0 and len(found) == limit
        events = tuple(record.event_of(row) for row in found)
        return EventPage(events, events[-1].seq if is_cut else end)

    async def _settled_end(self, after_seq: int) -> int:
        """The last seq below which nothing can still be committed.

        `after_seq` while that takes long: then there is nothing to tell yet to one
        who follows.
        """
        last = func.coalesce(func.max(cluster_events.c.seq), 0)
        end, edge = (await self._pool.fetch(select(last, _snapshot("xmax"))))[0]
        if end <= after_seq:
            return after_seq
        is_settled = await self._is_settled(edge) or after_seq == 0
        return int(end) if is_settled else after_seq

    async def _is_settled(self, edge: int) -> bool:
        """Has every transaction that began before `edge` ended? Waits for it a bit."""
        for _ in range(_GAP_POLLS):
            oldest = (await self._pool.fetch(select(_snapshot("xmin"))))[0][0]
            if oldest >= edge:
                return True
            await asyncio.sleep(_GAP_POLL_S)
        return False

    async def _read_events(
        self, after_seq: int, limit: int, wanted: Sequence[ColumnElement[bool]]
    ) -> Found:
        seq = cluster_events.c.seq
        query = select(cluster_events).where(*wanted).limit(limit)
        if after_seq > 0:
            query = query.where(seq > after_seq).order_by(seq)
        else:
            query = query.order_by(seq.desc())
        rows = await self._pool.mappings(query)
        return rows if after_seq > 0 else rows[::-1]

    async def _without_gap(self, after_seq: int, limit: int, found: Found) -> Found:
        """A reader who goes on from the last seq must not miss one committed later.

        Three lanes write events, and a seq is taken before its commit. Once every
        transaction that ran when the gap was seen has ended, it is filled or stays.
        """
        if not _first_gap(after_seq, found):
            return found
        edge = (await self._pool.fetch(select(_snapshot("xmax"))))[0][0]
        if await self._is_settled(edge):
            within = cluster_events.c.seq <= found[-1]["seq"]
            return await self._read_events(after_seq, limit, [within])
        return found[: (_first_gap(after_seq, found) or 1) - 1]

    async def alerts(self, where: EventQuery, limit: int = 1000) -> Sequence[Event]:
        rows = await self._pool.mappings(
            select(cluster_events)
            .where(_IS_ALERT, *chosen(where))
            .order_by(_columns.seq.desc())
            .limit(limit)
        )
        return [record.event_of(row) for row in rows]

    async def acknowledge_alert(
        self, seq: int, by: str, at: datetime, note: str = ""
    ) -> Event | None:
        async with self._pool.begin() as connection:
            found = await _locked(connection, seq)
            if found is None or found.resolved_at or found.acknowledged_at:
                return found
            data = {**found.data, "note": note} if note else found.data
            seen = replace(
                found, acknowledged_at=at, acknowledged_by=clean(by), data=data
            )
            await connection.execute(
                update(cluster_events)
                .where(_columns.seq == seq)
                .values(
                    acknowledged_at=at,
                    acknowledged_by=seen.acknowledged_by,
                    data=record.to_json(data),
                )
            )
            return seen

    async def worsen_alert(
        self, seq: int, severity: str, title: str, data: Mapping[str, Any]
    ) -> None:
        async with self._pool.begin() as connection:
            found = await _locked(connection, seq)
            if found is not None and found.resolved_at is None:
                await connection.execute(
                    update(cluster_events)
                    .where(_columns.seq == seq)
                    .values(
                        severity=clean(severity),
                        title=clean(title),
                        data=record.to_json({**found.data, **data}),
                    )
                )

    async def resolve_alerts(self, seqs: Sequence[int], at: datetime) -> None:
        if seqs:
            await self._pool.fetch(
                update(cluster_events)
                .where(_columns.seq.in_(seqs), _IS_ALERT, _IS_OPEN)
                .values(resolved_at=at)
            )

    async def cursor(self, name: str) -> int | None:
        query = select(cursors.c.seq).where(cursors.c.name == name)
        rows = await self._pool.fetch(query)
        return int(rows[0][0]) if rows else None

    async def save_cursor(self, name: str, seq: int) -> None:
        first = upsert(cursors).values(name=name, seq=seq)
        furthest = func.greatest(cursors.c.seq, first.excluded.seq)
        await self._pool.fetch(
            first.on_conflict_do_update(index_elements=["name"], set_={"seq": furthest})
        )


async def _locked(connection: AsyncConnection, seq: int) -> Event | None:
    query = select(cluster_events).where(_columns.seq == seq, _IS_ALERT)
    row = (await connection.execute(query.with_for_update())).first()
    return None if row is None else record.event_of(dict(row._mapping))


def _first_gap(after_seq: int, found: Found) -> int | None:
    """1-based place of the first event that does not follow on the one before."""
    seqs = [after_seq, *(row["seq"] for row in found)]
    steps = enumerate(pairwise(seqs), start=1)
    return next((place for place, (a, b) in steps if b != a + 1), None)


def _snapshot(end: str) -> ColumnElement[int]:
    bound = getattr(func, f"pg_snapshot_{end}")(func.pg_current_snapshot())
    return cast(cast(bound, Text), BigInteger)


def _lifetime(task_id: str) -> list[ColumnElement[bool]]:
    def of(column: Any) -> Any:
        return select(column).where(tasks.c.id == task_id).scalar_subquery()

    return [
        cluster_events.c.task_ids.contains(literal([task_id], Texts)),
        cluster_events.c.at >= of(tasks.c.created_at) - _SLACK,
        cluster_events.c.at <= func.coalesce(of(tasks.c.finished_at) + _SLACK, _ALWAYS),
    ]
