"""Shares and their use in memory."""

from __future__ import annotations

from collections.abc import Sequence

from corral.core.tasks.share import Share, ShareUse
from corral.store.memory_shelf import MemoryShelf


class MemoryShares(MemoryShelf):
    async def save_share(self, share: Share) -> None:
        self._shares[share.name] = share

    async def delete_share(self, name: str) -> None:
        self._shares.pop(name, None)

    async def shares(self) -> Sequence[Share]:
        return [self._shares[name] for name in sorted(self._shares)]

    async def save_share_uses(self, uses: Sequence[ShareUse]) -> None:
        self._share_uses = {use.name: use for use in uses}

    async def share_uses(self) -> Sequence[ShareUse]:
        return [self._share_uses[name] for name in sorted(self._share_uses)]
