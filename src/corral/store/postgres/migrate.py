"""Brings a database's schema up to date, one manager at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import ProgrammingError

from corral.errors import StoreUnavailable
from corral.store.postgres.connection import ConnectionPool, patient_engine
from corral.store.postgres.errors import translated
from corral.store.tables.metadata import HEAD

# Any number will do that nobody else uses in this database: "corral" in base 36.
_LOCK = 767_199_981


async def upgrade(url: str, pool: ConnectionPool) -> None:
    """Apply the migrations that `url`'s database lacks.

    Alembic is imported only when there is something to apply: most starts find the
    schema as it should be.

    Raises:
        StoreUnavailable: also when a newer Corral has been at this database.
    """
    if await _version(pool) == HEAD:
        return
    engine = patient_engine(url)
    try:
        with translated():
            async with engine.begin() as connection:
                await connection.execute(
                    text("select pg_advisory_xact_lock(:key)"), {"key": _LOCK}
                )
                await connection.run_sync(_apply)
    finally:
        await engine.dispose()


async def _version(pool: ConnectionPool) -> str | None:
    try:
        rows = await pool.fetch(text("select version_num from alembic_version"))
    except ProgrammingError:
        return None
    return str(rows[0][0]) if rows else None


def _apply(connection: Connection) -> None:
    from alembic import command
    from alembic.util import CommandError

    try:
        command.upgrade(alembic_config(connection), HEAD)
    except CommandError as error:
        raise StoreUnavailable(
            f"the database's schema is not one this Corral knows, start it with the "
            f"Corral that made it: {error}"
        ) from error


def alembic_config(connection: Connection | None = None) -> Any:
    from alembic.config import Config

    config = Config()
    folder = Path(__file__).parents[1] / "migrations"
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
