"""Thirty days of readings in a real PostgreSQL: their size, and charts of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from corral.core.insight.chart_series import ReadingRetention, plan
from corral.core.insight.metric import GPU_METRICS, HOURS_S, MINUTES_S, NODE_METRICS
from corral.store.base import Retention
from corral.store.postgres.metrics import MetricRows
from corral.store.postgres.store import PostgresStore
from tests.contract.conftest import PostgresServer

DAY_S = 86_400
DAYS, NODES, CARDS, SAMPLE_S = 30, 2, 3, 300
NOW = datetime(2026, 3, 1, tzinfo=UTC)
END = int(NOW.timestamp())
KEEP = Retention(30 * DAY_S, 30 * DAY_S, DAY_S, 365 * DAY_S)
# What a row may take, with its index: docs/metrics.md counts with these.
ROW_BYTES = {"system": 340, "gpu": 160}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def store(server: PostgresServer) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(server.new_database())
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def database(store: PostgresStore) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(store._url)
    yield connection
    await connection.close()


async def fill(database: Any, days: int = DAYS) -> None:
    """A reading every five minutes, in the order of time."""
    times = "generate_series($1::bigint, $2::bigint - 1, $3::bigint) as at"
    nodes = f"generate_series(1, {NODES}) as node"
    random = ", ".join(["random() * 100"] * len(NODE_METRICS))
    arguments = (END - days * DAY_S, END, SAMPLE_S)
    await database.execute(
        f"""
        insert into system_resources (node_id, at, {", ".join(NODE_METRICS)}, cpu_count,
            network_rx_bytes, network_tx_bytes, load_5m, load_15m)
        select 'n' || node, to_timestamp(at), {random}, 8, 0, 0, 0, 0
        from {times}, {nodes} order by at
        """,
        *arguments,
    )
    await database.execute(f"""
        insert into gpus (node_id, gpu_uuid, gpu_index, vendor, name, last_at)
        select 'n' || node, 'GPU-' || card, card, 'nvidia', 'H200', now()
        from {nodes}, generate_series(1, {CARDS}) as card""")
    random = ", ".join(["random() * 100"] * len(GPU_METRICS))
    await database.execute(
        f"""
        insert into gpu_resources (gpu, at, {", ".join(GPU_METRICS)})
        select gpus.id, to_timestamp(at), {random} from {times}, gpus order by at
        """,
        *arguments,
    )


@pytest.mark.spec("A20", "A22", "A23")
async def test_thirty_days_are_thinned_to_their_size_and_drawn_whole(
    store: PostgresStore, database: Any
) -> None:
    await fill(database)
    await store.prune(NOW, KEEP)
    await database.execute("vacuum full")
    for kind, each in (("system", NODES), ("gpu", NODES * CARDS)):
        for form, rows in (
            # The last readings are not thinned yet.
            ("resources", DAY_S // SAMPLE_S),
            ("minutes", 7 * DAY_S // MINUTES_S - 1),
            ("hours", DAYS * DAY_S // HOURS_S - 1),
        ):
            table = f"{kind}_{form}"
            found = await database.fetchval(f"select count(*) from {table}")
            assert found == rows * each, table
            size = f"select pg_total_relation_size('{table}')"
            assert await database.fetchval(size) / found < ROW_BYTES[kind], table
    begin = datetime.fromtimestamp(END - DAYS * DAY_S, UTC)
    span = plan(begin, NOW, None, NOW, ReadingRetention(DAY_S, 7 * DAY_S))
    whole = DAYS * DAY_S // SAMPLE_S
    buckets = await store.metrics.node_history("n2", span)
    assert len(buckets) == len(span.times) == 240
    assert sum(bucket.samples for bucket in buckets) == whole
    cards = await store.metrics.gpu_history("n2", span)
    assert [sum(b.samples for b in rows) for _, rows in cards] == [whole] * CARDS
    cluster = await store.metrics.cluster_history(span)
    assert [bucket.samples for bucket in cluster] == [NODES] * 240


async def test_thinning_goes_on_where_it_was_broken_off(
    store: PostgresStore, database: Any
) -> None:
    await fill(database, days=2)
    for step_s in (MINUTES_S, HOURS_S):
        await MetricRows(store._pool)._thin(step_s, END - DAY_S)
    await database.execute(
        "update system_minutes set cpu_percent = -1; update gpu_minutes set power_w = 0"
    )
    other = PostgresStore(store._url)
    await store.metrics.roll_up(NOW)
    await other.metrics.roll_up(NOW)
    await other.close()
    # What was done is not done again, and the rest is done once.
    done = "select count(*) from system_minutes where cpu_percent = -1"
    assert await database.fetchval(done) == DAY_S // MINUTES_S * NODES
    rows = 2 * DAY_S // MINUTES_S - 1
    count = "select count(*), sum(samples) from system_minutes"
    assert tuple(await database.fetchrow(count)) == (rows * NODES, rows * NODES)
