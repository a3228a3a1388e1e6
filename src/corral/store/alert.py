"""Alerts: events that stay open until their cause is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, literal_column, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from corral.store import record
from corral.store.connection import Pool
from corral.store.event import ALERT, Event, EventFilter
from corral.store.schema import NOT_OF_TASKS, cluster_events
from corral.store.text import clean

_columns = cluster_events.c
# As the partial index has it, so that rows of other types are not looked at.
_IS_ALERT = _columns.event_type == literal_column(f"'{ALERT}'")
_IS_OPEN = _columns.resolved_at.is_(None)


def chosen(where: EventFilter) -> list[ColumnElement[bool]]:
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


class Alerts:
    _pool: Pool

    async def alerts(self, where: EventFilter, limit: int = 1000) -> Sequence[Event]:
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


async def _locked(connection: AsyncConnection, seq: int) -> Event | None:
    query = select(cluster_events).where(_columns.seq == seq, _IS_ALERT)
    row = (await connection.execute(query.with_for_update())).first()
    return None if row is None else record.event_of(dict(row._mapping))
