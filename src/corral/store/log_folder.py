"""Log chunks as blobs beside the objects, in their folder or S3 bucket.

A task id is data, so what becomes a path is made of it here.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterable
from typing import Literal

from obstore.exceptions import AlreadyExistsError
from obstore.store import S3Store

from corral.errors import NotFound
from corral.store.base import LogChunk
from corral.store.objects import ObjectStore, translated

Mode = Literal["create", "overwrite"]
# Safe as a name on every system, also where case does not tell two names apart.
_SAFE = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")


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
