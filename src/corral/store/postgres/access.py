"""Keys, secrets and the audit log: who may do what, and who asked for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, bindparam, delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from corral.core.access.key import Key
from corral.core.access.secret import Secret
from corral.store.base import AuditRow
from corral.store.postgres import rows as record
from corral.store.postgres.audit_chain import Chain, Verifier, link
from corral.store.postgres.connection import ConnectionPool
from corral.store.tables.events import audit, audit_chain
from corral.store.tables.registry import ended_sessions, keys, secrets

_AUDIT_PAGE = 1000


@dataclass(frozen=True, slots=True)
class AccessRows:
    _pool: ConnectionPool

    async def save_key(self, key: Key) -> None:
        await self._pool.save(keys, [record.key_row(key)])

    async def keys(self) -> Sequence[Key]:
        rows = await self._pool.mappings(select(keys).order_by(keys.c.id))
        return [record.key_of(row) for row in rows]

    async def save_secret(self, secret: Secret) -> None:
        await self._pool.save(secrets, [record.secret_row(secret)])

    async def delete_secret(self, name: str) -> None:
        await self._pool.fetch(delete(secrets).where(secrets.c.name == name))

    async def secrets(self) -> Sequence[Secret]:
        rows = await self._pool.mappings(select(secrets).order_by(secrets.c.name))
        return [record.secret_of(row) for row in rows]

    async def use_key(self, key_id: str, now: datetime) -> bool:
        spent = await self._pool.fetch(
            update(keys)
            .where(
                keys.c.id == key_id,
                keys.c.revoked_at.is_(None),
                or_(keys.c.expires_at.is_(None), keys.c.expires_at > now),
                or_(keys.c.uses_left.is_(None), keys.c.uses_left > 0),
            )
            .values(uses_left=keys.c.uses_left - 1)
            .returning(keys.c.id)
        )
        return bool(spent)

    async def stamp_keys(self, used: Mapping[str, datetime]) -> None:
        if used:
            statement = update(keys).where(keys.c.id == bindparam("of"))
            rows = [{"of": key_id, "at": at} for key_id, at in sorted(used.items())]
            await self._pool.fetch(statement.values(last_used_at=bindparam("at")), rows)

    async def end_session(self, digest: str, until: datetime, now: datetime) -> None:
        await self._pool.fetch(
            delete(ended_sessions).where(ended_sessions.c.until <= now)
        )
        await self._pool.save(ended_sessions, [{"id": digest, "until": until}])

    async def ended_sessions(self) -> Mapping[str, datetime]:
        rows = await self._pool.fetch(
            select(ended_sessions.c.id, ended_sessions.c.until)
        )
        return dict(map(tuple, rows))

    async def add_audit(self, rows: Sequence[AuditRow]) -> None:
        if not rows:
            return
        async with self._pool.begin() as connection:
            chain = await read_chain(connection)
            chain, linked = link(chain, map(record.audit_row, rows))
            await connection.execute(insert(audit), linked)
            await save_chain(connection, chain)

    async def audit(self, limit: int = 100) -> Sequence[AuditRow]:
        rows = await self._pool.mappings(
            select(audit).order_by(audit.c.seq.desc()).limit(limit)
        )
        return [record.audit_of(row) for row in rows]

    async def check_audit(self) -> bool:
        # One snapshot for the ends and the rows between them.
        async with self._pool.begin(isolation_level="REPEATABLE READ") as connection:
            verifier = Verifier(await read_chain(connection, lock=False))
            last = 0
            while page := (await connection.execute(_audit_after(last))).all():
                if not all(verifier.accepts(dict(row._mapping)) for row in page):
                    return False
                last = page[-1].seq
            return verifier.is_complete()


def _audit_after(seq: int) -> Select[Any]:
    return (
        select(audit).where(audit.c.seq > seq).order_by(audit.c.seq).limit(_AUDIT_PAGE)
    )


async def read_chain(connection: AsyncConnection, lock: bool = True) -> Chain:
    """The ends of the chain; its row is also the lock that orders writers."""
    query = select(audit_chain)
    row = (await connection.execute(query.with_for_update() if lock else query)).one()
    return Chain(row.first_seq, row.anchor, row.last_seq, row.last_hash)


async def save_chain(connection: AsyncConnection, chain: Chain) -> None:
    await connection.execute(
        update(audit_chain).values(
            first_seq=chain.first_seq,
            anchor=chain.anchor,
            last_seq=chain.last_seq,
            last_hash=chain.last_hash,
        )
    )
