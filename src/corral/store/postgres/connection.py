"""Connections to PostgreSQL. Nothing here knows what a statement means.

One lane for each writer of the hot path, and a small pool for everything else.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from time import perf_counter
from typing import Any

import asyncpg
from sqlalchemy import Executable, Table, event
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from corral.errors import StoreUnavailable
from corral.store.postgres.errors import (
    DRIVER_ERRORS,
    is_rolled_back,
    is_unsent,
    translate,
    translated,
)

CONNECT_TIMEOUT_S = 10.0
STATEMENT_TIMEOUT_S = 20.0
LOCK_TIMEOUT_S = 10.0
# The server ends a statement first; this is for a server that no longer answers.
COMMAND_TIMEOUT_S = STATEMENT_TIMEOUT_S + 5.0
_TRIES = 3

_BASE = {"application_name": "corral", "timezone": "UTC", "jit": "off"}
_PATIENT = {
    **_BASE,
    "statement_timeout": str(int(STATEMENT_TIMEOUT_S * 1000)),
    "lock_timeout": str(int(LOCK_TIMEOUT_S * 1000)),
    "idle_in_transaction_session_timeout": "60000",
}
# A hot statement always wants its rows by primary key. Plans made while the table was
# still empty would scan it, and stay cached while it grows.
_HOT = {
    **_PATIENT,
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}


def driver_url(url: str) -> str:
    """The URL as the driver wants it: `postgres://` and `+driver` are tolerated."""
    return re.sub(r"^postgres(ql)?(\+\w+)?://", "postgresql://", url)


class StatementTimes:
    """The seconds of each statement, and which connection had it, for who listens."""

    def __init__(self) -> None:
        self._tell: Callable[[str, float], None] | None = None

    def listen(self, tell: Callable[[str, float], None]) -> None:
        self._tell = tell

    def note(self, name: str, seconds: float) -> None:
        if self._tell is not None:
            self._tell(name, seconds)


class Timed:
    """Notes the seconds of each use of a connection, waiting left out."""

    def __init__(self, name: str, times: StatementTimes) -> None:
        self._name = name
        self._times = times

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = perf_counter()
        try:
            yield
        finally:
            self._times.note(self._name, perf_counter() - began)


class WriterLane(Timed):
    """One connection for one kind of writer, made anew after it was lost.

    A pool would send a reset query after every statement; callers of a lane queue for
    its one connection instead.
    """

    def __init__(self, url: str, name: str, times: StatementTimes) -> None:
        super().__init__(name, times)
        self._url = url
        self._connection: Any = None
        self._lock = asyncio.Lock()

    async def open(self) -> None:
        async with self._lock:
            await self._connected()

    async def close(self) -> None:
        async with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None and not connection.is_closed():
                with translated():
                    await connection.close(timeout=5)

    async def fetch(self, statement: str, *arguments: Any) -> Sequence[Any]:
        """Run one statement as one transaction.

        Raises:
            BadRequest: the database refuses the data; nothing was written.
            StoreUnavailable: it may or may not have been written; the next call
                connects again.
        """
        async with self._lock:
            with self._timed():
                return await self._fetch(statement, arguments)

    async def _fetch(self, statement: str, arguments: Sequence[Any]) -> Sequence[Any]:
        for last in (False,) * (_TRIES - 1) + (True,):
            connection = await self._connected()
            try:
                return await connection.fetch(statement, *arguments)  # type: ignore[no-any-return]
            except DRIVER_ERRORS as error:
                if is_rolled_back(error) and not last:
                    continue
                if is_unsent(error) and not last:
                    self._drop()
                    continue
                ours = translate(error)
                if ours is None:
                    raise
                if isinstance(ours, StoreUnavailable):
                    self._drop()
                raise ours from error
        raise AssertionError("unreachable")

    async def _connected(self) -> Any:
        if self._connection is None or self._connection.is_closed():
            with translated():
                self._connection = await connect(self._url, _HOT)
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        connection.terminate()


async def connect(url: str, settings: dict[str, str]) -> Any:
    return await asyncpg.connect(
        driver_url(url),
        timeout=CONNECT_TIMEOUT_S,
        command_timeout=COMMAND_TIMEOUT_S,
        max_cached_statement_lifetime=0,
        server_settings=settings,
    )


class ConnectionPool(Timed):
    """The cold side: Core statements on a few shared connections."""

    def __init__(self, url: str, size: int, name: str, times: StatementTimes) -> None:
        super().__init__(name, times)

        async def creator() -> Any:
            return await connect(url, _PATIENT)

        self._engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=creator,
            pool_size=size,
            # More would be made and closed for single statements, and newcomers would
            # get those while whoever waits for a kept one goes on waiting.
            max_overflow=0,
            pool_timeout=CONNECT_TIMEOUT_S,
            pool_use_lifo=True,
        )
        # One statement is its own transaction: no begin and rollback around a read.
        self._single = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        event.listen(self._engine.sync_engine, "checkout", _check_open)

    async def close(self) -> None:
        await self._engine.dispose()

    @asynccontextmanager
    async def begin(self, **options: Any) -> AsyncIterator[AsyncConnection]:
        """A transaction of several statements."""
        with translated():
            async with self._engine.connect() as connection:
                if options:
                    await connection.execution_options(**options)
                with self._timed():
                    async with connection.begin():
                        yield connection

    async def fetch(
        self, statement: Executable, rows: Sequence[dict[str, Any]] | None = None
    ) -> Sequence[Any]:
        """Run one statement, for each of `rows` where given; what it returned."""
        with translated():
            async with self._single.connect() as connection:
                with self._timed():
                    result = await connection.execute(statement, rows)
                    return result.all() if result.returns_rows else ()

    async def save(
        self, table: Table, rows: Sequence[dict[str, Any]], only: tuple[str, ...] = ()
    ) -> None:
        """Insert rows; of what has the same key all is replaced, or `only` these."""
        if rows:
            await self.fetch(upsert(table, only), rows)

    async def mappings(self, query: Executable) -> Sequence[Mapping[str, Any]]:
        """The rows of a query by column name."""
        return [row._mapping for row in await self.fetch(query)]


@cache
def upsert(table: Table, only: tuple[str, ...] = ()) -> Insert:
    """Made once: when many nodes start together, making it costs more than the rest."""
    statement = insert(table)
    rest = only or [c.name for c in table.columns if not c.primary_key]
    return statement.on_conflict_do_update(
        index_elements=list(table.primary_key),
        set_={name: statement.excluded[name] for name in rest},
    )


def _check_open(driver: Any, _record: Any, _proxy: Any) -> None:
    """Skip connections that ended while they lay in the pool, with no round trip."""
    if driver.driver_connection.is_closed():
        raise DisconnectionError


def patient_engine(url: str) -> AsyncEngine:
    """For migrations, which may take long: no statement timeout, nothing kept."""

    async def creator() -> Any:
        return await asyncpg.connect(
            driver_url(url), timeout=CONNECT_TIMEOUT_S, server_settings=_BASE
        )

    return create_async_engine(
        "postgresql+asyncpg://", async_creator=creator, poolclass=NullPool
    )
