"""PostgreSQL as the store: the parts put together, and their connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

from sqlalchemy import select, text
from sqlalchemy.dialects.postgresql import insert

from corral.errors import StoreUnavailable
from corral.store.objects import ObjectStore
from corral.store.postgres.connection import ConnectionPool, StatementTimes, WriterLane
from corral.store.postgres.events import EventRows
from corral.store.postgres.metrics import MetricStore
from corral.store.postgres.migrate import upgrade
from corral.store.postgres.models import CatalogueRows, ModelRows
from corral.store.postgres.prune import ClearRows
from corral.store.postgres.registry import LearnedRows, RegistryRows, ShareRows
from corral.store.postgres.schedules import ScheduleStore
from corral.store.postgres.tasks.artifacts import ArtifactRows
from corral.store.postgres.tasks.logs import LogFolder, LogStore
from corral.store.postgres.tasks.result_cache import ResultRows
from corral.store.postgres.tasks.tasks import TaskRows
from corral.store.postgres.usage import UsageRows
from corral.store.tables.registry import leadership


class PostgresStore(
    TaskRows,
    LogStore,
    ArtifactRows,
    RegistryRows,
    ModelRows,
    CatalogueRows,
    ShareRows,
    LearnedRows,
    ResultRows,
    ScheduleStore,
    EventRows,
    ClearRows,
    MetricStore,
    UsageRows,
):
    """The store every cluster runs on.

    Args:
        url: where the database is, as libpq writes it.
        objects: where long log chunks go; without it they stay in their rows.
        pool_size: connections kept for reads and the registry, beside the four lanes.
    """

    def __init__(
        self, url: str, *, objects: ObjectStore | None = None, pool_size: int = 8
    ) -> None:
        self._url = url
        self._log_folder = None if objects is None else LogFolder(objects)
        self._times = StatementTimes()
        self._pool = ConnectionPool(url, pool_size, "pool", self._times)
        self._submits = WriterLane(url, "submits", self._times)
        self._placements = WriterLane(url, "placements", self._times)
        self._reports = WriterLane(url, "reports", self._times)
        self._lookups = WriterLane(url, "lookups", self._times)

    def measure(self, tell: Callable[[str, float], None]) -> None:
        """Have `tell` called with the seconds of each statement, and which
        connection had it: that of a writer of the hot path, or the pool.
        """
        self._times.listen(tell)

    async def open(self) -> None:
        """Connect and bring the schema up to date.

        May be called again after it raised StoreUnavailable.
        """
        await upgrade(self._url, self._pool)
        await asyncio.gather(*(lane.open() for lane in self._lanes()))

    async def close(self) -> None:
        try:
            await asyncio.gather(*(lane.close() for lane in self._lanes()))
        except StoreUnavailable:
            pass  # Its end of the connection is gone already.
        finally:
            await self._pool.close()

    def _lanes(self) -> tuple[WriterLane, ...]:
        return self._submits, self._placements, self._reports, self._lookups

    async def ping(self) -> None:
        await self._pool.fetch(text("select 1"))

    async def take_lead(self, holder: str, now: datetime) -> int:
        first = insert(leadership).values(id=1, term=1, holder=holder, taken_at=now)
        # Waits for the statements of the former leader that hold the row.
        rows = await self._pool.fetch(
            first.on_conflict_do_update(
                index_elements=["id"],
                set_={
                    "term": leadership.c.term + 1,
                    "holder": first.excluded.holder,
                    "taken_at": first.excluded.taken_at,
                },
            ).returning(leadership.c.term)
        )
        return int(rows[0][0])

    async def term(self) -> int:
        rows = await self._pool.fetch(select(leadership.c.term))
        return int(rows[0][0]) if rows else 0
