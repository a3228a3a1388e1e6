"""Removes objects that nothing names any more, long after they were last asked for.

Named are: what is kept for tasks, what payloads of tasks mention, every version of the
worker types, what workers run, files of models; and all that the trees among these
consist of.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from corral.core import tree as trees
from corral.core.nodes.worker_type import WorkerCode
from corral.core.tasks.environment import ArchiveEnvironment, Environment
from corral.errors import BadRequest, CorruptObject, NotFound
from corral.manager.context import ManagerContext
from corral.manager.output.artifacts import load_tree
from corral.manager.output.objects import Objects

log = logging.getLogger(__name__)
GRACE_S = 6 * 3600.0
"""An upload may take that long between asking what is missing and being named."""
LONGEST_PAUSE_S = 86_400.0
_GONE = (NotFound, CorruptObject, BadRequest)


class ObjectCleanup:
    """`keep_s` is how old an object is at least when it goes."""

    def __init__(self, ctx: ManagerContext, asked: Objects, keep_s: float) -> None:
        self._cluster = ctx.cluster
        self._store = ctx.store
        self._objects = ctx.objects
        self._asked = asked
        self._clock = ctx.clock
        self._keep_s = keep_s
        self._grace_s = min(GRACE_S, keep_s)
        # What was asked for before this manager led is not known to it.
        self._next = ctx.clock.monotonic() + self._grace_s

    async def step(self) -> None:
        await self._store.output.drop_trees()
        now = self._clock.monotonic()
        self._asked.forget(now - self._grace_s)
        if now >= self._next:
            self._next = now + min(self._keep_s / 4, LONGEST_PAUSE_S)
            await self.collect()

    async def collect(self) -> int:
        """Remove what nothing names; how many objects."""
        named = await self._named()
        end = self._clock.now() - timedelta(seconds=self._keep_s)
        count = 0
        async for batch in self._objects.listed():
            for digest, at in batch:
                if at < end and digest not in named:
                    count += await self._asked.remove(digest)
        if count:
            log.info("removed %d objects that nothing names any more", count)
        return count

    async def _named(self) -> set[str]:
        """All or nothing: a store that does not answer leaves everything."""
        kept = await self._store.output.kept_digests()
        roots = await self._store.output.payload_digests()
        for worker in list(self._cluster.workers.values()):
            spec = worker.worker.spec
            roots |= _digests_of(spec.environment)
            roots |= await self._of_entry(spec.entry)
        for kind in list(self._cluster.worker_types.values()):
            for entry in kind.versions:
                roots |= await self._of_entry(entry)
        named = kept | roots
        for model in await self._store.models.catalogue():
            named |= {part for file in model.files for part in file.parts}
        for digest in kept:
            named |= await self._within(digest, None)
        # Anybody may put any digest into a payload. What no node would write to its
        # disk is of no use to anybody, whatever it consists of.
        for digest in roots - kept:
            named |= await self._within(digest, trees.TREE_BYTES)
        return named

    async def _of_entry(self, digest: str | None) -> set[str]:
        if digest is None:
            return set()
        try:
            entry = WorkerCode.decode(await self._objects.get(digest))
        except _GONE:
            return {digest}
        return {digest, *_digests_of(entry.environment)}

    async def _within(self, digest: str, limit_bytes: int | None) -> set[str]:
        """What the tree of this name consists of; nothing when it is no tree."""
        try:
            if not trees.is_tree(await self._objects.start(digest)):
                return set()
            data = await self._objects.get(digest)
            pieces = await asyncio.to_thread(trees.pieces_of, data)
            tree = await load_tree(self._objects, digest, limit_bytes)
        except _GONE as error:
            log.warning("object %s cannot be looked into: %s", digest, error)
            return set()
        return {*pieces, *tree.chunks()}


def _digests_of(environment: Environment | None) -> set[str]:
    if isinstance(environment, ArchiveEnvironment):
        return {environment.digest}
    return set()
