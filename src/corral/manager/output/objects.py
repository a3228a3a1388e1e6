"""Objects by digest, as users and nodes put and get them.

What somebody was told is there is spared for a while: they rely on it before anything
names it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from corral.errors import InvalidField, NotFound
from corral.manager.context import ManagerContext
from corral.store.objects import check_digest


class Objects:
    def __init__(self, ctx: ManagerContext) -> None:
        self._objects = ctx.objects
        self._clock = ctx.clock
        self._spared: dict[str, float] = {}
        self._removing = asyncio.Lock()

    # what people and nodes ask ---------------------------------------------------
    async def expect(self, digest: str) -> bool:
        """Somebody is about to send this object; is it there already?

        Raises:
            InvalidField: it is no digest.
        """
        await self.spare([check_digest(digest)])
        return await self._objects.exists(digest)

    async def put(self, data: bytes, digest: str) -> None:
        """Raises TooLarge, or InvalidField when the bytes have another digest."""
        await self._objects.put(data, digest)

    async def put_all(self, blobs: Sequence[bytes]) -> list[str]:
        """Store several; their digests."""
        return await self._objects.put_all(blobs)

    async def missing(self, digests: Sequence[str], sizes: Sequence[int]) -> list[str]:
        """Those that are not stored; with `sizes`, nor in another size.

        Raises:
            InvalidField: one is no digest, or there are not as many sizes.
        """
        for digest in digests:
            check_digest(digest)
        if sizes and len(sizes) != len(digests):
            raise InvalidField("as many sizes as digests, or none", field="sizes")
        await self.spare(digests)
        return await self._objects.missing(digests, sizes)

    async def get(self, digest: str) -> bytes:
        """Raises InvalidField, NotFound or CorruptObject."""
        return await self._objects.get(digest)

    async def size(self, digest: str) -> int:
        """Raises InvalidField, or NotFound when there is no such object."""
        await self.spare([check_digest(digest)])
        size = await self._objects.size(digest)
        if size is None:
            raise NotFound(f"no object {digest}", digest=digest)
        return size

    async def check_there(self, digest: str) -> None:
        """Raises NotFound when it was not uploaded."""
        if not await self._objects.exists(digest):
            raise NotFound(f"no object {digest}: upload it first", digest=digest)

    # what is spared --------------------------------------------------------------
    async def spare(self, digests: Iterable[str]) -> None:
        """Call it before somebody is told that these are there, and relies on it."""
        now = self._clock.monotonic()
        # Not while one of them is being removed.
        async with self._removing:
            for digest in digests:
                # To the end, so that the oldest stay in front.
                self._spared.pop(digest, None)
                self._spared[digest] = now

    def forget(self, before: float) -> None:
        """Spare no longer what was asked for before that (monotonic)."""
        old = []
        for digest, at in self._spared.items():
            if at >= before:
                break
            old.append(digest)
        for digest in old:
            del self._spared[digest]

    async def remove(self, digest: str) -> bool:
        """Remove an object unless it is spared; whether it was."""
        async with self._removing:
            if digest in self._spared:
                return False
            await self._objects.delete(digest)
            return True
