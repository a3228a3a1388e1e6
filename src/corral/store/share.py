"""Shares of the cluster, and what each has used of a day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Protocol

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert

from corral.core.tasks.share import Share, ShareUse
from corral.store.connection import Pool
from corral.store.schema import share_uses, shares


class ShareStore(Protocol):
    """What the store keeps of shares."""

    async def save_share(self, share: Share) -> None: ...

    async def delete_share(self, name: str) -> None: ...

    async def shares(self) -> Sequence[Share]: ...

    async def save_share_uses(self, uses: Sequence[ShareUse]) -> None:
        """In place of what was there: what is not among them is forgotten."""

    async def share_uses(self) -> Sequence[ShareUse]: ...


class Shares:
    _pool: Pool

    async def save_share(self, share: Share) -> None:
        statement = insert(shares).values(asdict(share))
        rest = [c.name for c in shares.columns if not c.primary_key]
        await self._pool.fetch(
            statement.on_conflict_do_update(
                index_elements=["name"],
                set_={name: statement.excluded[name] for name in rest},
            )
        )

    async def delete_share(self, name: str) -> None:
        await self._pool.fetch(delete(shares).where(shares.c.name == name))

    async def shares(self) -> Sequence[Share]:
        rows = await self._pool.mappings(select(shares).order_by(shares.c.name))
        return [Share(**row) for row in rows]

    async def save_share_uses(self, uses: Sequence[ShareUse]) -> None:
        async with self._pool.begin() as connection:
            await connection.execute(delete(share_uses))
            if uses:
                await connection.execute(
                    insert(share_uses), [asdict(use) for use in uses]
                )

    async def share_uses(self) -> Sequence[ShareUse]:
        rows = await self._pool.mappings(select(share_uses).order_by(share_uses.c.name))
        return [ShareUse(**row) for row in rows]
