"""What tasks leave behind: logs, and the trees of files kept for them.

A log chunk has an index row, with its text in it or, when that is long, among the
objects. Of trees the artifacts of every attempt are kept, and one checkpoint.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Literal

from obstore.exceptions import AlreadyExistsError
from obstore.store import S3Store
from sqlalchemy import (
    ColumnElement,
    and_,
    delete,
    exists,
    func,
    select,
    text,
    true,
    tuple_,
)
from sqlalchemy.dialects.postgresql import insert

from corral.core.tasks.task import State
from corral.errors import NotFound
from corral.store.base import CHECKPOINT, KeptTree, LogChunk
from corral.store.objects import ObjectStore, translated
from corral.store.postgres.connection import ConnectionPool, upsert
from corral.store.tables.tasks import code_objects, kept_trees, log_chunks, tasks
from corral.store.text import clean

log = logging.getLogger(__name__)


Mode = Literal["create", "overwrite"]
# Safe as a name on every system, also where case does not tell two names apart.
_SAFE = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")
SHORT = 2048
_DIGESTS = (
    "select distinct m[1] from tasks, "
    "regexp_matches(payload, '(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])', 'g') m"
)


def folder_name(task_id: str) -> str:
    """The id itself where it is a harmless name, else what is left of it and a hash."""
    if _SAFE.fullmatch(task_id):
        return task_id
    rest = re.sub(r"[^a-z0-9_-]", "_", task_id.lower())[:64]
    return f"{rest}.{_hash(task_id)[:16]}"


def _hash(task_id: str) -> str:
    return hashlib.sha256(task_id.encode("utf-8", "surrogatepass")).hexdigest()


class LogFolder:
    """`logs/<two hex digits>/<task>/<attempt>-<seq>.json` beside the objects.

    Every call may raise StoreUnavailable.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._backend = objects.backend
        # Not every S3 server knows how to refuse what is there already.
        self._is_s3 = isinstance(self._backend, S3Store)

    async def write(self, chunks: Iterable[LogChunk]) -> None:
        """Whole or not at all; what is there already stays."""
        await asyncio.gather(*(self._write(chunk) for chunk in chunks))

    async def _write(self, chunk: LogChunk) -> None:
        place = _place(chunk.task_id, chunk.attempt, chunk.seq)
        mode: Mode = "overwrite" if self._is_s3 else "create"
        with translated(place):
            try:
                await self._backend.put_async(
                    place, chunk.lines.encode(), mode=mode, use_multipart=False
                )
            except AlreadyExistsError:
                return

    async def read(self, task_id: str, attempt: int, seq: int) -> str | None:
        """None when the blob is gone."""
        place = _place(task_id, attempt, seq)
        try:
            with translated(place):
                found = await self._backend.get_async(place)
                return bytes(await found.bytes_async()).decode()
        except NotFound:
            return None

    async def remove(self, task_ids: Iterable[str]) -> None:
        for task_id in task_ids:
            folder = _folder(task_id)
            with translated(folder):
                async for batch in self._backend.list(folder):
                    await self._backend.delete_async([str(x["path"]) for x in batch])


def _folder(task_id: str) -> str:
    return f"logs/{_hash(task_id)[:2]}/{folder_name(task_id)}"


def _place(task_id: str, attempt: int, seq: int) -> str:
    return f"{_folder(task_id)}/{int(attempt)}-{int(seq)}.json"


@dataclass(frozen=True, slots=True)
class OutputRows:
    _pool: ConnectionPool
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

    async def save_tree(self, tree: KeptTree) -> None:
        row = asdict(tree) | {"left_out": clean(tree.left_out)}
        async with self._pool.begin() as connection:
            await connection.execute(upsert(kept_trees), row)
            if tree.kind == CHECKPOINT:
                await connection.execute(
                    delete(kept_trees).where(
                        kept_trees.c.task_id == tree.task_id,
                        kept_trees.c.kind == CHECKPOINT,
                        kept_trees.c.attempt < tree.attempt,
                    )
                )

    async def trees(self, task_id: str, kind: str) -> Sequence[KeptTree]:
        rows = await self._pool.mappings(
            select(kept_trees)
            .where(kept_trees.c.task_id == clean(task_id), kept_trees.c.kind == kind)
            .order_by(kept_trees.c.attempt)
        )
        return [KeptTree(**row) for row in rows]

    async def forget_trees(self, task_id: str, kind: str) -> None:
        await self._pool.fetch(
            delete(kept_trees).where(
                kept_trees.c.task_id == task_id, kept_trees.c.kind == kind
            )
        )

    async def drop_trees(self) -> int:
        same = tasks.c.id == kept_trees.c.task_id
        is_done = exists().where(same, tasks.c.state == str(State.COMPLETED))
        rows = await self._pool.fetch(
            delete(kept_trees)
            .where(
                ((kept_trees.c.kind == CHECKPOINT) & is_done) | ~exists().where(same)
            )
            .returning(kept_trees.c.task_id)
        )
        return len(rows)

    async def kept_digests(self) -> set[str]:
        rows = await self._pool.fetch(select(kept_trees.c.digest).distinct())
        return {row[0] for row in rows}

    async def payload_digests(self) -> set[str]:
        return {row[0] for row in await self._pool.fetch(text(_DIGESTS))}

    async def save_code(self, digest: str, owner: str, at: datetime) -> None:
        row = {"digest": digest, "owner": clean(owner), "at": at}
        await self._pool.fetch(
            insert(code_objects).values(row).on_conflict_do_nothing()
        )

    async def code(self, digests: Sequence[str]) -> set[str]:
        is_asked = code_objects.c.digest.in_(digests)
        rows = await self._pool.fetch(select(code_objects.c.digest).where(is_asked))
        return {row[0] for row in rows}

    async def forget_code(self, digest: str) -> None:
        await self._pool.fetch(
            delete(code_objects).where(code_objects.c.digest == digest)
        )

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
