"""Shares of the cluster: set, removed, told to the scheduler, and what they used kept.

How they are followed is decided by `scheduler/world/share.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from corral.core.access.share import Share, ShareUse, check_share
from corral.core.tasks.task import State
from corral.errors import NotFound
from corral.manager.context import ManagerContext
from corral.manager.feature import Loop
from corral.manager.tasks.dispatch import Dispatch
from corral.scheduler.events import ShareGone, ShareSet, ShareUsed
from corral.scheduler.world.share import GROUP_KEY
from corral.store.base import QueueStore

_PERIOD_S = 30.0


@dataclass(frozen=True, slots=True)
class ShareStatus:
    """A share and how it stands; one for every value is the sum of those."""

    share: Share
    running: int = 0
    waiting: int = 0
    gpu_seconds_today: float = 0.0


class ClusterShares:
    def __init__(self, ctx: ManagerContext, dispatch: Dispatch) -> None:
        self._cluster = ctx.cluster
        self._store: QueueStore = ctx.store.queues
        self._dispatch = dispatch
        self._shares: dict[str, Share] = {}
        self._kept: Sequence[ShareUse] = ()

    async def load(self) -> None:
        """Before tasks are: they find their lines at once."""
        apply = self._cluster.scheduler.apply
        for share in await self._store.shares():
            self._shares[share.name] = share
            apply(ShareSet(share))
        self._kept = await self._store.share_uses()
        for use in self._kept:
            apply(ShareUsed(use.name, use.day, use.gpu_seconds))

    def _count(self) -> None:
        """Tell the scheduler of all that is with workers already."""
        for task in self._cluster.tasks.values():
            if task.state is not State.QUEUED:
                self._cluster.taken(task)

    async def save(self, share: Share) -> None:
        """Set a share, or change it.

        Raises:
            InvalidField: a name or number that means nothing.
        """
        check_share(share)
        await self._store.save_share(share)
        self._shares[share.name] = share
        self._cluster.scheduler.apply(ShareSet(share))
        self._count()
        self._dispatch.kick()

    async def remove(self, name: str) -> None:
        """Raises NotFound."""
        if name not in self._shares:
            raise NotFound(f"no share {name[:200]!r}", share=name[:200])
        await self._store.delete_share(name)
        self._shares.pop(name, None)
        self._cluster.scheduler.apply(ShareGone(name))
        self._dispatch.kick()

    def all(self) -> list[ShareStatus]:
        return [self.get(name) for name in sorted(self._shares)]

    def get(self, name: str) -> ShareStatus:
        """Raises KeyError where there is none of that name."""
        share = self._shares[name]
        found = [
            bucket
            for bucket in self._cluster.scheduler.buckets()
            if bucket.name == name
            or (
                share.is_each
                and bucket.key == share.key
                and bucket.name not in self._shares
            )
        ]
        return ShareStatus(
            share,
            sum(bucket.running for bucket in found),
            sum(len(line) for bucket in found for line in bucket.lines.values()),
            sum(bucket.gpu_used_s for bucket in found),
        )

    def loop(self) -> Loop:
        return Loop("shares", _PERIOD_S, self.step)

    async def step(self) -> None:
        """Keep what was used: a manager that takes over goes on counting."""
        day = self._cluster.scheduler.share_day()
        uses = [
            ShareUse(bucket.name, day, bucket.gpu_used_s)
            for bucket in self._cluster.scheduler.buckets()
            if bucket.gpu_quota_s is not None and bucket.key != GROUP_KEY
        ]
        if uses != self._kept:
            await self._store.save_share_uses(uses)
            self._kept = uses
