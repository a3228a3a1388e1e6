"""Keys, secrets and the audit log: who may do what, and who asked for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    bindparam,
    delete,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from corral.core.access.key import Key
from corral.core.access.secret import Secret
from corral.store.base import EVERYTHING, AuditQuery, AuditReport, AuditRow
from corral.store.postgres import rows as record
from corral.store.postgres.audit_chain import Chain, Verifier, begin, link
from corral.store.postgres.connection import ConnectionPool
from corral.store.tables.events import audit, audit_chain
from corral.store.tables.registry import ended_sessions, keys, secrets

_AUDIT_PAGE = 1000


@dataclass(frozen=True, slots=True)
class AccessRows:
    _pool: ConnectionPool
    _audit_key: bytes = b""

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

    async def add_audit(self, rows: Sequence[AuditRow]) -> int:
        async with self._pool.begin() as connection:
            chain = await read_chain(connection)
            if not rows:
                return chain.last_seq
            chain, linked = link(chain, map(record.audit_row, rows), self._audit_key)
            await connection.execute(insert(audit), linked)
            await save_chain(connection, chain)
            return chain.last_seq

    async def audit(
        self, limit: int = 100, where: AuditQuery = EVERYTHING
    ) -> Sequence[AuditRow]:
        query = select(audit).where(*_wanted(where))
        rows = await self._pool.mappings(
            query.order_by(audit.c.seq.desc()).limit(limit)
        )
        return [record.audit_of(row) for row in rows]

    async def check_audit(self) -> AuditReport:
        # One snapshot for the ends and the rows between them.
        async with self._pool.begin(isolation_level="REPEATABLE READ") as connection:
            chain = await read_chain(connection, lock=False)
            verifier = Verifier(chain, self._audit_key)
            last = 0
            while page := (await connection.execute(_audit_after(last))).all():
                if not all(verifier.accepts(dict(row._mapping)) for row in page):
                    break
                last = page[-1].seq
            return verifier.report()

    async def seal_audit(self) -> None:
        """Give a chain its key that has none: a new one, or one of a former release."""
        async with self._pool.begin() as connection:
            chain = await read_chain(connection)
            await save_chain(connection, begin(chain, self._audit_key))


def _wanted(where: AuditQuery) -> Iterator[ColumnElement[bool]]:
    if where.actors:
        yield audit.c.actor.in_(where.actors)
    if where.action:
        yield audit.c.action.startswith(where.action, autoescape=True)
    if where.target:
        yield audit.c.target.startswith(where.target, autoescape=True)
    if where.allowed is not None:
        yield audit.c.allowed == where.allowed
    if where.since is not None:
        yield audit.c.at >= where.since
    if where.until is not None:
        yield audit.c.at < where.until
    if where.before is not None:
        yield audit.c.seq < where.before


def _audit_after(seq: int) -> Select[Any]:
    return (
        select(audit).where(audit.c.seq > seq).order_by(audit.c.seq).limit(_AUDIT_PAGE)
    )


async def read_chain(connection: AsyncConnection, lock: bool = True) -> Chain:
    """The ends of the chain; its row is also the lock that orders writers."""
    query = select(*(audit_chain.c[field.name] for field in fields(Chain)))
    row = (await connection.execute(query.with_for_update() if lock else query)).one()
    return Chain(*row)


async def save_chain(connection: AsyncConnection, chain: Chain) -> None:
    await connection.execute(update(audit_chain).values(asdict(chain)))
