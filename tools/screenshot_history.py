"""A past for the cluster in the pictures: a week of ended tasks, and readings of it.

Rows are written as the manager would have left them; the manager itself counts and
thins them, and the pages ask it. Nothing is drawn that is not in its store.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import psutil

from tests.acceptance.cluster import Cluster, until

DAY = timedelta(days=1)
DAYS = 7
TASKS = 20_000
STEP, FINE = timedelta(minutes=5), timedelta(seconds=30)
OWNERS = ("ann", "ann", "bob", "ci")
FAULTS = (
    "ValueError: the canvas tore at stroke 3",
    "FileNotFoundError: no such file: in-12.png",
    "RuntimeError: no paint left",
)
_DICE = random.Random(8)


def wave(at: datetime, shift: float = 0.0) -> float:
    """How much goes on, from 0 to 1: less at night, and never quite the same."""
    hours = at.timestamp() / 3600 + shift
    day = 0.5 - 0.42 * math.cos((hours - 3) / 24 * 2 * math.pi)
    swell = 0.22 * math.sin(hours * 2.1) + 0.12 * math.sin(hours * 5.3 + shift)
    ripple = 0.08 * math.sin(hours * 23.0 + 2 * shift)
    return min(1.0, max(0.03, day + swell + ripple + _DICE.uniform(-0.05, 0.05)))


@asynccontextmanager
async def _database(cluster: Cluster) -> AsyncIterator[Any]:
    environment = psutil.Process(cluster.pid("manager")).environ()
    database = await asyncpg.connect(environment["CORRAL_DATABASE_URL"])
    try:
        async with database.transaction():
            yield database
    finally:
        await database.close()


async def fill_tasks(cluster: Cluster) -> None:
    """A week up to now; before any other task, as the newest come first in lists."""
    async with _database(cluster) as database:
        await _tasks(database, datetime.now(UTC))
    client = cluster.client
    until(
        "the manager has counted them",
        lambda: (client.cluster_metrics("7d").metrics.total_tasks or 0) > TASKS * 0.9,
        240,
    )


async def fill_readings(cluster: Cluster) -> None:
    """A week up to now, instead of what was measured while nothing ran."""
    async with _database(cluster) as database:
        nodes = {node.node_id: node.gpus for node in cluster.client.nodes()}
        await _readings(database, datetime.now(UTC), nodes)
        # The manager thins from the first reading on again.
        await database.execute("delete from cursors where name like 'metrics.%'")


def _times(now: datetime) -> Iterator[datetime]:
    at, fine = now - DAYS * DAY, now - timedelta(hours=2)
    while at < now:
        yield at
        at += STEP if at < fine else FINE


async def _readings(database: Any, now: datetime, nodes: dict[str, Any]) -> None:
    """Each comes to what is so now."""
    latest = await database.fetch(
        "select distinct on (node_id) * from system_resources order by node_id, at desc"
    )
    cards = await database.fetch("select id, gpu_uuid from gpus order by id")
    known = {gpu["id"]: gpu for gpus in nodes.values() for gpu in gpus}
    for table in ("system_resources", "gpu_resources"):
        await database.execute(f"delete from {table}")
    for place, row in enumerate(latest):
        gpus = nodes[row["node_id"]]
        rows = [_reading(dict(row), gpus, at, now, 3.1 * place) for at in _times(now)]
        names = list(rows[0])
        await database.copy_records_to_table(
            "system_resources", records=[list(r.values()) for r in rows], columns=names
        )
    for place, card in enumerate(cards):
        gpu = known[card["gpu_uuid"]]
        figures = [(at, _card(gpu, at, now, 1.7 * place)) for at in _times(now)]
        await database.copy_records_to_table(
            "gpu_resources",
            records=[(card["id"], at, *both) for at, both in figures],
            columns=["gpu", "at", "utilization_percent", "memory_used_mb"],
        )


def _card(
    gpu: dict[str, Any], at: datetime, now: datetime, shift: float
) -> tuple[float, float]:
    """How busy it was, and what of its memory was in use."""
    last = gpu["utilization_percent"]
    busy = last + 45 * (wave(at, shift) - wave(now, shift)) if last else 0.0
    used = gpu["memory_used_mb"] * (1.0 if busy > last / 2 else 0.6)
    return min(97.0, max(0.0, busy)), used


def _reading(
    row: dict[str, Any], gpus: Any, at: datetime, now: datetime, shift: float
) -> dict[str, Any]:
    busy = wave(at, shift)
    total, disk = row["memory_total_mb"], row["disk_total_gb"]
    left = (now - at) / (DAYS * DAY)
    cards = [_card(gpu, at, now, shift + place) for place, gpu in enumerate(gpus)]
    return row | {
        "at": at,
        "cpu_percent": 6 + 62 * busy,
        "load_1m": 2 * busy,
        "memory_used_mb": total * (0.1 + 0.1 * busy),
        "disk_used_gb": row["disk_used_gb"] - 0.04 * disk * left,
        "network_rx_rate": 4e5 + 9e6 * busy**2,
        "network_tx_rate": 2e5 + 2e6 * wave(at, shift + 5) ** 2,
        "gpu_utilization_percent": sum(one[0] for one in cards) / len(cards),
        "gpu_memory_used_mb": sum(one[1] for one in cards),
    }


async def _tasks(database: Any, now: datetime) -> None:
    workers = await database.fetch("select id, node_id, job_types from workers")
    kinds = [(w, kind) for w in workers for kind in w["job_types"]]
    made = sorted(_made(kinds, now), key=lambda row: row["finished_at"])
    names = list(made[0])
    await database.copy_records_to_table(
        "tasks", records=[list(row.values()) for row in made], columns=names
    )
    failed = [row for row in made if row["state"] == "failed"]
    tried = ["worker_id", "node_id", "started_at", "finished_at", "error_kind"]
    tried.append("error_message")
    await database.copy_records_to_table(
        "attempts",
        columns=["task_id", "attempt", "run", "outcome", *tried],
        records=[[r["id"], 1, 1, "failed", *(r[n] for n in tried)] for r in failed],
    )
    events = [
        (
            "tasks_settled",
            f"{len(some)} settled",
            some[-1]["finished_at"],
            [row["id"] for row in some],
            json.dumps({"states": [row["state"] for row in some]}),
        )
        for some in (made[i : i + 20] for i in range(0, len(made), 20))
    ]
    columns = ["event_type", "title", "at", "task_ids", "data"]
    await database.copy_records_to_table(
        "cluster_events", records=events, columns=columns
    )
    await database.executemany(
        "insert into task_counts (at, ended, completed, failed, response_s, waiting)"
        " values ($1, 0, 0, 0, 0, $2) on conflict do nothing",
        list(_waiting(made, now)),
    )


def _waiting(
    made: list[dict[str, Any]], now: datetime
) -> Iterator[tuple[datetime, int]]:
    """Of each five minutes, how many waited at their worst."""
    counts: dict[int, int] = {}
    for row in made:
        at = int(row["created_at"].timestamp()) // 300
        for step in range(at, int(row["started_at"].timestamp()) // 300 + 1):
            counts[step] = counts.get(step, 0) + 1
    last = int(now.timestamp()) // 300
    for step in range(min(counts), last):
        yield datetime.fromtimestamp(step * 300, UTC), counts.get(step, 0)


def _made(kinds: list[Any], now: datetime) -> Iterator[dict[str, Any]]:
    number = 0
    while number < TASKS:
        at = now - DAYS * DAY * _DICE.random()
        if _DICE.random() > wave(at):
            continue
        number += 1
        yield _task(number, *_DICE.choice(kinds), at, now)


def _task(
    number: int, worker: Any, kind: str, at: datetime, now: datetime
) -> dict[str, Any]:
    began = at + timedelta(seconds=_DICE.expovariate(1 / (2 + 30 * wave(at) ** 2)))
    took_s = _DICE.lognormvariate(3.6, 0.7) if kind == "paint" else 2 * _DICE.random()
    ended = began + timedelta(seconds=took_s)
    at, began, ended = min(at, now - DAY / 1440), min(began, now), min(ended, now)
    is_bad = _DICE.random() < 0.015 + 0.03 * wave(at, 9) ** 3
    fault = _DICE.choice(FAULTS) if is_bad else None
    model = ("sketch", "oil", "sketch", "fresco")[number % 4]
    return {
        "id": f"{int(at.timestamp() * 1000):012x}-{number:06x}",
        "job_type": kind,
        "payload": json.dumps({"prompt": "a barn", "steps": 4 + number % 9}),
        "priority": 0,
        "model": model if kind == "paint" else None,
        "retries": 0,
        "labels": [json.dumps(["team", ("film", "web", "print")[number % 3]])],
        "overlap": "allowed",
        "owner": OWNERS[number % len(OWNERS)],
        "state": "failed" if is_bad else "completed",
        "run": 1,
        "attempt": 1,
        "tries": int(is_bad),
        "losses": 0,
        "worker_id": worker["id"],
        "node_id": worker["node_id"],
        "created_at": at,
        "assigned_at": began,
        "started_at": began,
        "finished_at": ended,
        "result": None if is_bad else '{"picture": "a picture of a barn"}',
        "error_kind": "exception" if is_bad else None,
        "error_message": fault,
    }
