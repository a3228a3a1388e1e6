"""A database of the release before, with tasks of every kind, is taken over whole."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from alembic import command

from corral.core.nodes.labels import Constraint
from corral.core.tasks.needs import Need, read_needs
from corral.core.tasks.options import Gang, ResultKey, Trace
from corral.core.tasks.result_cache import cached_from
from corral.core.tasks.task import State, Task, TaskFilter
from corral.store.postgres.connection import patient_engine
from corral.store.postgres.migrate import alembic_config
from corral.store.postgres.store import PostgresStore
from tests.contract.conftest import NOW, PostgresServer, later, place, settlement

LIVE, ENDED = 1000, 5000
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
# What the labels of a task were at 0021, and what each of them says of it now.
SAID: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({}, {}),
    ({"team": "red", 'a"ü\\': "ö, {x}"}, {}),
    (
        {"corral.notify": "http://a.test/x?y=1 http://b.test/"},
        {"notify": ("http://a.test/x?y=1", "http://b.test/")},
    ),
    (
        {"corral.node_labels": "disk=ssd,rack=b", "corral.tolerates": "spot,tier=a"},
        {
            "constraint": Constraint(
                (("disk", "ssd"), ("rack", "b")), frozenset({"spot", "tier=a"})
            )
        },
    ),
    (
        {"corral.group": "g:1", "corral.group_limit": "3"},
        {"group": "g:1", "group_limit": 3},
    ),
    ({"corral.preemptible": "1", "corral.no_cache": "yes"}, {"preemptible": True}),
    (
        {"corral.needs": "cpus=1500;memory=64;gpus=2;share=1000;kind=A 100|H200"},
        {
            "resources": read_needs(
                {"cpus": 1.5, "memory_mb": 64, "gpus": 2, "gpu_kind": ["A 100", "H200"]}
            )
        },
    ),
    (
        {"corral.needs": "gpus=1;share=1;gpu_memory=4000;vendor=nvidia"},
        {"resources": Need(gpus=1, share=1, gpu_mb=4000, vendor="nvidia")},
    ),
    ({"corral.gang": "train/1/2"}, {"member": Gang("train", 1, 2)}),
    (
        {"corral.profile": "torch", "corral.no_cache": "yes"},
        {"profile": "torch", "no_cache": True},
    ),
    (
        {"corral.request": "ann-1", "corral.traceparent": PARENT, "mine": "x"},
        {"trace": Trace("ann-1", PARENT)},
    ),
    ({"job.worker": "w-1", "job.name": "Nächtlich"}, {"only_on": "w-1"}),
    ({"job.entrypoint": "main.py"}, {"entrypoint": "main.py"}),
    (
        {"schedule": "nightly", "schedule.at": "2026-01-01T03:00Z"},
        {"schedule": "nightly", "scheduled_at": "2026-01-01T03:00Z"},
    ),
    (
        {"corral.cache": "k1 v1 tiny", "corral.same_as": "t1"},
        {"question": ResultKey("k1", "v1", "tiny"), "same_as": "t1"},
    ),
    (
        {"corral.cache": "k1 v1 ", "corral.cached": "t2"},
        {"question": ResultKey("k1", "v1", ""), "cached_from": "t2"},
    ),
]
FORMER = {name for labels, _ in SAID for name in labels if "." in name}
COLUMNS = (
    "id, job_type, payload, priority, retries, labels, overlap, owner, state, run,"
    " attempt, tries, losses, created_at, finished_at, result"
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.stop()


def row(number: int) -> tuple[Any, ...]:
    is_live = number < LIVE
    labels = [json.dumps(pair) for pair in sorted(SAID[number % len(SAID)][0].items())]
    return (
        *(f"t{number:05}", "echo", f'{{"n": {number}}}', number % 7, 2, labels or None),
        *("allowed", "ann", "queued" if is_live else "completed", 1, 1, 0, 0),
        *(NOW, None if is_live else later(1), None if is_live else f'"{number}"'),
    )


@pytest.fixture
async def store(server: PostgresServer) -> AsyncIterator[PostgresStore]:
    """Opened on a database that the release before has filled."""
    url = server.new_database()
    engine = patient_engine(url)
    async with engine.begin() as connection:
        await connection.run_sync(
            lambda sync: command.upgrade(alembic_config(sync), "0021")
        )
    await engine.dispose()
    old = await asyncpg.connect(url)
    places = ", ".join(f"${n}" for n in range(1, 17))
    await old.executemany(
        f"insert into tasks ({COLUMNS}) values ({places})",
        [row(number) for number in range(LIVE + ENDED)],
    )
    task = {"job_type": "echo", "payload": "{}", "priority": 0, "model": None}
    task |= {"timeout_s": None, "retries": 0, "owner": "ann", "overlap": "never"}
    task["labels"] = {"team": "red", "corral.notify": "http://a.test/"}
    await old.execute(
        "insert into schedules (name, cron, task, timezone, missed, overlap)"
        " values ('nightly', '0 3 * * *', $1, 'UTC', 'once', 'allow')",
        json.dumps(task),
    )
    await old.close()
    store = PostgresStore(url)
    await store.open()
    yield store
    await store.close()


def said(task: Task) -> tuple[dict[str, str], dict[str, Any]]:
    return SAID[int(task.id[1:]) % len(SAID)]


async def test_every_task_reads_as_before_and_runs_on(store: PostgresStore) -> None:
    ids = [f"t{number:05}" for number in range(LIVE + ENDED)]
    found = {task.id: task for task in await store.tasks.get_tasks(ids)}
    assert found.keys() == set(ids)
    for number, task_id in enumerate(ids):
        task = found[task_id]
        old, now = said(task)
        assert task.spec.payload == f'{{"n": {number}}}'
        assert task.state is (State.QUEUED if number < LIVE else State.COMPLETED)
        assert task.result == (None if number < LIVE else f'"{number}"')
        left = {k: v for k, v in old.items() if k not in FORMER and k != "schedule"}
        assert task.spec.labels == left
        for name, value in now.items():
            assert getattr(task.spec.options, name) == value, (task_id, name)
        if "cached_from" in now:
            assert cached_from(task) == "t2"
    live = await store.tasks.live_tasks()
    assert sorted(task.id for task in live) == ids[:LIVE]
    term = await store.take_lead("m", NOW)
    placed = await store.tasks.place_tasks(
        term, [place(task) for task in live], later(2)
    )
    assert len(placed) == LIVE
    done = await store.tasks.settle_tasks(term, [settlement(task.id) for task in live])
    assert done == set(ids[:LIVE])


async def test_what_is_asked_for_by_option_is_found(store: PostgresStore) -> None:
    for where in (TaskFilter(request_id="ann-1"), TaskFilter(schedule="nightly")):
        page = await store.tasks.list_tasks(where, 1000)
        every = (LIVE + ENDED) // len(SAID)
        assert page.total in (every, every + 1)
    assert (await store.tasks.list_tasks(TaskFilter(request_id="ann"), 10)).total == 0
    assert (
        await store.tasks.list_tasks(TaskFilter(labels={"mine": "x"}), 10)
    ).total > 0


async def test_schedules_and_requeued_tasks_keep_whom_to_tell(
    store: PostgresStore,
) -> None:
    (schedule,) = await store.queues.schedules()
    assert schedule.task.labels == {"team": "red"}
    assert schedule.task.options.notify == ("http://a.test/",)
    told = next(n for n in range(LIVE, LIVE + 99) if "notify" in SAID[n % len(SAID)][1])
    term = await store.take_lead("m", NOW)
    await store.tasks.requeue_task(term, f"t{told:05}", NOW + timedelta(seconds=9))
    notices = await store.queues.notices([f"t{told:05}"])
    assert {n.url for n in notices} == {"http://a.test/x?y=1", "http://b.test/"}
