"""One look at a database from outside: can it be reached, used and written?

It keeps nothing: one connection, a change that is rolled back, and the end of it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg

from corral.errors import StoreUnavailable
from corral.no_answer import NoAnswerReason, no_answer_reason
from corral.store.postgres.connection import driver_url
from corral.store.postgres.errors import DRIVER_ERRORS
from corral.store.tables.metadata import HEAD

_BY_SQLSTATE = {
    "28": NoAnswerReason.LOGIN,
    "3D": NoAnswerReason.ABSENT,
    "53": NoAnswerReason.CROWDED,
    "57": NoAnswerReason.STARTING,
}
_FACTS = """
select current_setting('server_version') as version,
  current_setting('server_version_num')::int / 10000 as major,
  clock_timestamp() as now,
  current_setting('max_connections')::int
    - current_setting('superuser_reserved_connections')::int as connections,
  (select count(*) from pg_stat_activity where backend_type = 'client backend')
    as used,
  to_regclass('alembic_version') is not null as has_schema
"""
_SCHEMA = "select version_num from alembic_version"
# A database that has its tables is asked for a row, one without for a table.
_CHANGE = "update alembic_version set version_num = version_num"
_CREATE = "create table corral_checkup (number int)"


@dataclass(frozen=True, slots=True)
class DatabaseCheckup:
    """What was found; `refusal` is why nothing can be written, if so.

    `schema` is None in a database that has no tables of ours yet.
    """

    version: str
    major: int
    now: datetime
    connections: int
    used: int
    schema: str | None
    refusal: str | None
    head: str = HEAD

    @property
    def is_known(self) -> bool:
        """Did this Corral, or an older one, make the schema?"""
        return self.schema is None or self.schema in _known()


def place_of(url: str) -> str:
    """Where a database is, without user and password."""
    parts = urlsplit(url)
    name = parts.path.lstrip("/")
    if parts.hostname is None:
        folder = parse_qs(parts.query).get("host", ["the usual socket"])[-1]
        return f"{folder} ({name})"
    return f"{parts.hostname}:{parts.port or 5432}/{name}"


async def examine(url: str, timeout_s: float = 5.0) -> DatabaseCheckup:
    """Connect, look, write and roll back.

    Raises:
        StoreUnavailable: it cannot be reached; `.silence` says why.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await _examine(url, timeout_s)
    except (*DRIVER_ERRORS, ValueError) as error:
        message = str(error) or type(error).__name__
        raise StoreUnavailable(message, silence=_silence(error)) from error


async def _examine(url: str, timeout_s: float) -> DatabaseCheckup:
    link = await asyncpg.connect(
        driver_url(url),
        timeout=timeout_s,
        server_settings={"application_name": "corral doctor"},
    )
    try:
        row = await link.fetchrow(_FACTS)
        schema = await link.fetchval(_SCHEMA) if row["has_schema"] else None
        return DatabaseCheckup(
            row["version"],
            row["major"],
            row["now"],
            row["connections"],
            row["used"],
            schema,
            await _refusal(link, _CHANGE if schema == HEAD else _CREATE),
        )
    finally:
        link.terminate()


async def _refusal(link: Any, change: str) -> str | None:
    trial = link.transaction()
    await trial.start()
    try:
        await link.execute(change)
    except asyncpg.PostgresError as error:
        return str(error)
    finally:
        await trial.rollback()
    return None


def _silence(error: BaseException) -> NoAnswerReason:
    state = getattr(error, "sqlstate", None) or ""
    if found := _BY_SQLSTATE.get(state[:2]):
        return found
    found = no_answer_reason(error)
    lost = (asyncpg.InterfaceError, asyncpg.InternalClientError, ConnectionError)
    if found is NoAnswerReason.OTHER and isinstance(error, lost):
        # It took the connection, and did not answer as PostgreSQL does.
        return NoAnswerReason.STRANGER
    return found


def _known() -> set[str]:
    folder = Path(__file__).parents[1] / "migrations" / "versions"
    return {file.name.partition("_")[0] for file in folder.glob("[0-9]*.py")}
