"""Objects by digest, as users and nodes put and get them.

What somebody was told is there is spared for a while: they rely on it before anything
names it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from corral.core.tasks.environment import ArchiveEnvironment
from corral.core.tasks.script import JOB_TYPE, read_script
from corral.core.tasks.task import TaskSpec
from corral.errors import Conflict, InvalidField, NotFound
from corral.manager.context import ManagerContext
from corral.store.objects import check_digest

_CODE_TYPES = frozenset({JOB_TYPE, "function"})
_REMEMBERED = 100_000


class Objects:
    def __init__(self, ctx: ManagerContext) -> None:
        self._objects = ctx.objects
        self._store = ctx.store.output
        self._clock = ctx.clock
        self._code: set[str] = set()
        """Of what was sent to be run, that which was asked for."""
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

    async def put_code(self, data: bytes, digest: str, owner: str) -> None:
        """Store what its sender means to run.

        What tasks leave behind are objects, too: without this nobody could tell a
        result from a program.

        Raises:
            TooLarge, InvalidField: the latter when the bytes have another digest.
        """
        await self._objects.put(data, digest)
        await self._store.save_code(digest, owner, self._clock.now())

    async def get_code(self, digest: str) -> bytes:
        """Raises as `get` does, and Conflict when nobody sent it to be run."""
        check_digest(digest)
        if digest not in await self._known_code([digest]):
            raise Conflict(_not_code(digest), digest=digest)
        return await self._objects.get(digest)

    async def check_code(self, specs: Sequence[TaskSpec]) -> dict[str, InvalidField]:
        """By task, why the code it names may not be run; most name none."""
        named = {spec.id: digest for spec in specs if (digest := _code_of(spec))}
        known = await self._known_code(list(named.values()))
        return {
            task_id: InvalidField(_not_code(digest), field="archive")
            for task_id, digest in named.items()
            if digest not in known
        }

    async def _known_code(self, digests: Sequence[str]) -> set[str]:
        asked = set(digests)
        if new := sorted(asked - self._code):
            if len(self._code) > _REMEMBERED:
                self._code.clear()
            self._code |= await self._store.code(new)
        return asked & self._code

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

    async def size(self, digest: str, *, as_code: bool = False) -> int:
        """Raises InvalidField, or NotFound when there is no such object."""
        await self.spare([check_digest(digest)])
        size = await self._objects.size(digest)
        if as_code and digest not in await self._known_code([digest]):
            size = None
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
            # First, so that no result of the same bytes is ever taken for it.
            await self._store.forget_code(digest)
            self._code.discard(digest)
            await self._objects.delete(digest)
            return True


def _code_of(spec: TaskSpec) -> str | None:
    """The archive that a function or a script is to be run from.

    For an early word to who submits it; a worker asks again before it unpacks one.
    """
    if spec.job_type not in _CODE_TYPES or '"archive"' not in spec.payload:
        return None
    told: Any = msgspec.json.decode(spec.payload)
    if spec.job_type == JOB_TYPE:
        source = read_script(told).environment
        return source.digest if isinstance(source, ArchiveEnvironment) else None
    digest = told.get("archive") if isinstance(told, dict) else None
    return digest if isinstance(digest, str) else None


def _not_code(digest: str) -> str:
    return (
        f"object {digest} was not sent to be run: a result or an artifact is no "
        "program; send the code with PUT /objects/{digest}, as 'corral run --dir' does"
    )
