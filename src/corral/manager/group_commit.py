"""Group commit without timers: what arrives during a commit joins the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class GroupCommit(Generic[T, R]):
    """Calls `commit` with everything that is pending; one call at a time.

    `commit` returns one result per item, in order. When it raises, every item of
    that batch gets the exception.
    """

    def __init__(self, commit: Callable[[Sequence[T]], Awaitable[Sequence[R]]]) -> None:
        self._commit = commit
        self._pending: list[tuple[T, asyncio.Future[R]]] = []
        self._task: asyncio.Task[None] | None = None

    async def put(self, item: T) -> R:
        """Wait until `item` is committed."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._pending.append((item, future))
        if self._task is None:
            # Not in the caller's context: it works for others as well.
            self._task = asyncio.create_task(self._drain(), context=Context())
        return await future

    async def _drain(self) -> None:
        try:
            while self._pending:
                batch, self._pending = self._pending, []
                await self._one(batch)
        finally:
            # No await since the list was seen empty: whoever puts next finds either
            # a drain that will see its item, or none and begins one.
            self._task = None

    async def _one(self, batch: list[tuple[T, asyncio.Future[R]]]) -> None:
        try:
            results = await self._commit([item for item, _ in batch])
        except BaseException as e:
            for _, future in batch:
                if not future.done():
                    future.set_exception(e)
            if not isinstance(e, Exception):
                raise
            return
        for (_, future), result in zip(batch, results, strict=True):
            # Who waited may have been cancelled; its item is written all the same.
            if not future.done():
                future.set_result(result)
