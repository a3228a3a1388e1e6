"""Log chunks: an index row each, the text in it or, when long, among the objects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, and_, func, select, true, tuple_
from sqlalchemy.dialects.postgresql import insert

from corral.store.base import LogChunk
from corral.store.connection import Pool
from corral.store.log_folder import LogFolder
from corral.store.schema import log_chunks
from corral.store.text import clean

log = logging.getLogger(__name__)
SHORT = 2048


class LogStore:
    _pool: Pool
    _log_folder: LogFolder | None

    async def add_logs(self, chunks: Sequence[LogChunk]) -> None:
        if not chunks:
            return
        chunks = [replace(chunk, lines=clean(chunk.lines)) for chunk in chunks]
        # Files first: a row promises that its text is there.
        if self._log_folder is not None:
            await self._log_folder.write(c for c in chunks if not _is_short(c))
        await self._pool.fetch(
            insert(log_chunks).on_conflict_do_nothing(),
            [self._row(chunk) for chunk in chunks],
        )

    async def logs(
        self,
        task_id: str,
        after: tuple[int, int] = (0, 0),
        limit: int = 1000,
        *,
        attempt: int | None = None,
        limit_bytes: int | None = None,
    ) -> Sequence[LogChunk]:
        place = tuple_(log_chunks.c.attempt, log_chunks.c.seq)
        order = (log_chunks.c.attempt, log_chunks.c.seq)
        size = log_chunks.c.size
        found = (
            select(log_chunks, (func.sum(size).over(order_by=order) - size).label("at"))
            .where(_of(task_id, attempt), place > after)
            .order_by(*order)
            .limit(limit)
            .subquery()
        )
        rows = await self._pool.fetch(
            select(found)
            .where(true() if limit_bytes is None else found.c.at < limit_bytes)
            .order_by(found.c.attempt, found.c.seq)
        )
        return await asyncio.gather(*(self._filled(row) for row in rows))

    async def log_end(
        self, task_id: str, attempt: int | None = None
    ) -> tuple[int, int] | None:
        rows = await self._pool.fetch(
            select(log_chunks.c.attempt, log_chunks.c.seq)
            .where(_of(task_id, attempt))
            .order_by(log_chunks.c.attempt.desc(), log_chunks.c.seq.desc())
            .limit(1)
        )
        return (rows[0].attempt, rows[0].seq) if rows else None

    def _row(self, chunk: LogChunk) -> dict[str, Any]:
        return {
            "task_id": chunk.task_id,
            "attempt": chunk.attempt,
            "seq": chunk.seq,
            "size": len(chunk.lines.encode()),
            "lines": chunk.lines if self._is_in_row(chunk) else None,
        }

    def _is_in_row(self, chunk: LogChunk) -> bool:
        return self._log_folder is None or _is_short(chunk)

    async def _filled(self, row: Any) -> LogChunk:
        lines = row.lines
        if lines is None and self._log_folder is not None:
            lines = await self._log_folder.read(row.task_id, row.attempt, row.seq)
        if lines is None:
            log.warning("log chunk %s of %r is gone", row.seq, row.task_id)
            lines = "[]"
        return LogChunk(row.task_id, row.attempt, row.seq, lines)


def _is_short(chunk: LogChunk) -> bool:
    """A task that prints now and then would make a file of every line."""
    return len(chunk.lines) <= SHORT


def _of(task_id: str, attempt: int | None) -> ColumnElement[bool]:
    is_of = log_chunks.c.task_id == clean(task_id)
    return is_of if attempt is None else and_(is_of, log_chunks.c.attempt == attempt)
