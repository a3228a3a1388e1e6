"""PostgreSQL as the store: the parts put together, and their connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import select, text
from sqlalchemy.dialects.postgresql import insert

from corral.core.tasks.job_type import JobType
from corral.errors import StoreUnavailable
from corral.store.base import (
    AccessStore,
    EventStore,
    MetricStore,
    ModelStore,
    OutputStore,
    QueueStore,
    RegistryStore,
    ResultStore,
    Retention,
    TaskStore,
)
from corral.store.objects import ObjectStore
from corral.store.postgres.access import AccessRows
from corral.store.postgres.connection import ConnectionPool, StatementTimes, WriterLane
from corral.store.postgres.events import EventRows
from corral.store.postgres.metrics import MetricRows
from corral.store.postgres.migrate import upgrade
from corral.store.postgres.models import ModelRows
from corral.store.postgres.prune import PruneRows
from corral.store.postgres.queues import QueueRows
from corral.store.postgres.registry import RegistryRows
from corral.store.postgres.tasks.output import LogFolder, OutputRows
from corral.store.postgres.tasks.result_cache import ResultRows
from corral.store.postgres.tasks.tasks import TaskRows
from corral.store.tables.registry import leadership


class PostgresStore:
    """The store every cluster runs on.

    Args:
        url: where the database is, as libpq writes it.
        objects: where long log chunks go; without it they stay in their rows.
        pool_size: connections kept for reads and the registry, beside the four lanes.
        audit_key: what the hashes of the audit log are made with.
    """

    def __init__(
        self,
        url: str,
        *,
        objects: ObjectStore | None = None,
        pool_size: int = 8,
        audit_key: bytes = b"",
    ) -> None:
        self._url = url
        self._times = StatementTimes()
        self._pool = pool = ConnectionPool(url, pool_size, "pool", self._times)
        self._submits = WriterLane(url, "submits", self._times)
        self._placements = WriterLane(url, "placements", self._times)
        self._reports = WriterLane(url, "reports", self._times)
        self._lookups = WriterLane(url, "lookups", self._times)
        log_folder = None if objects is None else LogFolder(objects)
        metrics = MetricRows(pool)
        self._prune = PruneRows(pool, log_folder, metrics, audit_key)
        self.tasks: TaskStore = TaskRows(pool, *self._lanes())
        self.output: OutputStore = OutputRows(pool, log_folder)
        self.registry: RegistryStore = RegistryRows(pool)
        self.models: ModelStore = ModelRows(pool)
        self.queues: QueueStore = QueueRows(pool)
        self.events: EventStore = EventRows(pool)
        self.metrics: MetricStore = metrics
        self._access = AccessRows(pool, audit_key)
        self.access: AccessStore = self._access
        self.results: ResultStore = ResultRows(pool, self._lookups)

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
        await self._access.seal_audit()
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

    async def prune(self, now: datetime, keep: Retention) -> Mapping[str, int]:
        # First what is made of readings, tasks and events that go now.
        await self.metrics.roll_up(now)
        return +await self._prune.old(now, keep)

    async def clear(self, term: int, keep: Sequence[JobType]) -> Mapping[str, int]:
        gone = await self._prune.registered(term, keep)
        await self._prune.ended(gone)
        return +gone
