"""What was learned of tasks and workers, kept from one start to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Protocol

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert

from corral.core.insight.learned import Learned
from corral.store.connection import Pool
from corral.store.schema import learned

_FIGURES = ("count", "value", "spread", "middle", "sole", "at")
Subject = tuple[str, str, str, int, str]


def subject_of(row: Learned) -> Subject:
    """What a figure is of: there is one of each."""
    return row.kind, row.job_type, row.model, row.units, row.worker_id


class LearnedStore(Protocol):
    """What the store keeps of what was learned."""

    async def save_learned(self, rows: Sequence[Learned], at: datetime) -> None:
        """Keep these figures, in place of those of the same subjects."""

    async def learned(self, limit: int) -> Sequence[Learned]:
        """The latest so many, by subject."""

    async def forget_learned(self, before: datetime) -> None:
        """Drop what nothing was added to since."""


class LearnedRows:
    _pool: Pool

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
