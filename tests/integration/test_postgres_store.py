"""What only a real PostgreSQL can show: crashes, locks, migrations, tampering."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from corral.core.nodes.node import NodeRecord
from corral.core.nodes.worker import WorkerRecord, WorkerSpec
from corral.core.tasks.outcome import OutcomeKind
from corral.core.tasks.task import State
from corral.errors import NotLeader, StoreUnavailable
from corral.store.base import AuditRow, Event, LogChunk, Retention
from corral.store.objects import open_objects
from corral.store.postgres.connection import patient_engine
from corral.store.postgres.migrate import alembic_config
from corral.store.postgres.store import PostgresStore
from corral.store.postgres.tasks import sql
from corral.store.postgres.tasks.output import SHORT
from corral.store.tables.metadata import HEAD, metadata
from tests.contract.conftest import (
    NOW,
    PostgresServer,
    assigned,
    later,
    make_task,
    place,
    settlement,
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.new_database()


@pytest.fixture
async def store(url: str, tmp_path: Path) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, objects=open_objects(str(tmp_path / "objects")))
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def term(store: PostgresStore) -> int:
    return await store.take_lead("manager-1", NOW)


@pytest.fixture
async def aside(url: str) -> AsyncIterator[Any]:
    """A connection of somebody else to the same database."""
    connection = await asyncpg.connect(url)
    yield connection
    if not connection.is_closed():
        await connection.close()


OURS = "datname = current_database()"


async def settled(aside: Any, query: str) -> None:
    """Wait until the database answers the query with yes."""
    for _ in range(2000):
        if await aside.fetchval(query):
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"never: {query}")


async def blocked(aside: Any) -> None:
    """Wait until some statement in this database waits for a lock."""
    waiting = f"wait_event_type = 'Lock' and {OURS}"
    await settled(aside, f"select count(*) > 0 from pg_stat_activity where {waiting}")


async def test_a_killed_server_is_unavailable_and_then_works_again(
    server: PostgresServer, store: PostgresStore, term: int
) -> None:
    task = assigned(make_task("before"))
    await store.tasks.insert_tasks(term, [task, make_task("waiting")])
    with server.killed():
        for call in (
            store.tasks.insert_tasks(term, [make_task("during")]),
            store.tasks.place_tasks(term, [place(make_task("waiting"))], NOW),
            store.tasks.settle_tasks(term, [settlement("before")]),
            store.tasks.get_task("before"),
            store.registry.nodes(),
            store.access.add_audit([AuditRow(NOW, "a", "b", "c", True, "d", "e")]),
            store.ping(),
            PostgresStore(server.url()).open(),
        ):
            with pytest.raises(StoreUnavailable):
                await call
    await store.ping()
    assert await store.term() == term
    assert await store.tasks.settle_tasks(term, [settlement("before")]) == {"before"}
    assert list(await store.tasks.place_tasks(term, [place(make_task("waiting"))], NOW))
    inserted = await store.tasks.insert_tasks(
        term, [make_task("before"), make_task("after")]
    )
    assert list(inserted.created) == ["after"]
    assert inserted.existing["before"].state is State.COMPLETED


async def test_a_server_killed_under_a_statement_ends_the_call(
    server: PostgresServer, store: PostgresStore, term: int, aside: Any
) -> None:
    await store.tasks.insert_tasks(term, [assigned(make_task("held"))])
    transaction = aside.transaction()
    await transaction.start()
    await aside.execute("select from tasks where id = 'held' for update")
    call = asyncio.create_task(store.tasks.settle_tasks(term, [settlement("held")]))
    await blocked(aside)
    with server.killed(), pytest.raises(StoreUnavailable):
        await asyncio.wait_for(call, 10)
    assert await store.tasks.settle_tasks(term, [settlement("held")]) == {"held"}


async def test_ended_connections_are_replaced_without_an_error(
    store: PostgresStore, term: int, aside: Any
) -> None:
    await store.registry.nodes()
    await aside.execute("""
        select pg_terminate_backend(pid) from pg_stat_activity
        where pid <> pg_backend_pid() and datname = current_database()""")
    await settled(aside, "select count(*) = 1 from pg_stat_activity where " + OURS)
    assert (await store.tasks.insert_tasks(term, [make_task("one")])).created
    assert await store.tasks.get_task("one") is not None
    assert await store.registry.nodes() == []


async def test_two_stores_that_open_an_empty_database_make_one_schema(
    url: str,
) -> None:
    stores = [PostgresStore(url) for _ in range(3)]
    await asyncio.gather(*(store.open() for store in stores))
    terms = [await store.take_lead("m", NOW) for store in stores]
    assert terms == [1, 2, 3]
    for store in stores:
        await store.close()


@pytest.mark.spec("A11")
async def test_the_first_open_makes_exactly_the_schema_the_code_knows(
    url: str, store: PostgresStore
) -> None:
    engine = patient_engine(url)
    async with engine.connect() as connection:
        differences = await connection.run_sync(
            lambda sync: compare_metadata(MigrationContext.configure(sync), metadata)
        )
    await engine.dispose()
    assert differences == []
    assert ScriptDirectory.from_config(alembic_config()).get_current_head() == HEAD


def test_a_database_up_to_date_is_opened_without_alembic(url: str) -> None:
    program = (
        "import asyncio, sys\n"
        "from corral.store.postgres.store import PostgresStore\n"
        "async def main():\n"
        f"    store = PostgresStore({url!r})\n"
        "    await store.open()\n"
        "    await store.close()\n"
        "asyncio.run(main())\n"
        "print('alembic' in sys.modules)\n"
    )
    command = [sys.executable, "-c", program]
    answers = [
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    ]
    assert answers == ["True\n", "False\n"]


@pytest.mark.parametrize("version", ["9999", "0020"], ids=["newer", "before_release"])
async def test_the_schema_of_another_version_is_refused_and_left_alone(
    url: str, store: PostgresStore, aside: Any, version: str
) -> None:
    await aside.execute("update alembic_version set version_num = $1", version)
    other = PostgresStore(url)
    with pytest.raises(StoreUnavailable, match=f"the Corral that made it: .*{version}"):
        await other.open()
    await other.close()
    assert await aside.fetchval("select version_num from alembic_version") == version


async def test_a_new_leader_waits_for_the_statement_in_flight(
    store: PostgresStore, term: int, aside: Any
) -> None:
    async with aside.transaction():
        await aside.execute("select from leadership for share")
        taking = asyncio.create_task(store.take_lead("manager-2", NOW))
        await blocked(aside)
        assert not taking.done()
    assert await taking == term + 1


async def test_a_statement_that_met_the_change_of_leader_writes_nothing(
    store: PostgresStore, term: int, aside: Any
) -> None:
    await store.tasks.insert_tasks(term, [assigned(make_task("one"))])
    async with aside.transaction():
        await aside.execute("update leadership set term = term + 1")
        call = asyncio.create_task(store.tasks.settle_tasks(term, [settlement("one")]))
        await blocked(aside)
    with pytest.raises(NotLeader):
        await call
    task = await store.tasks.get_task("one")
    assert task is not None
    assert task.state is State.ASSIGNED


async def test_batches_that_lock_rows_crosswise_both_go_through(
    store: PostgresStore, term: int
) -> None:
    tasks = [make_task() for _ in range(2000)]
    await store.tasks.insert_tasks(term, tasks)
    cancel = [
        settlement(task.id, state=State.CANCELLED, outcome=OutcomeKind.CANCELLED)
        for task in reversed(tasks)
    ]
    placed, cancelled = await asyncio.gather(
        store.tasks.place_tasks(term, [place(task) for task in tasks], NOW),
        store.tasks.settle_tasks(term, cancel),
    )
    assert cancelled == {task.id for task in tasks}
    assert set(placed) <= cancelled


async def test_a_reader_of_events_misses_none_that_is_committed_late(
    store: PostgresStore, aside: Any
) -> None:
    await store.events.add_events([Event("a", "1", at=NOW)])
    transaction = aside.transaction()
    await transaction.start()
    await aside.execute(
        "insert into cluster_events (at, event_type, title) values (now(), 'a', '2')"
    )
    await store.events.add_events([Event("a", "3", at=NOW)])
    reading = asyncio.create_task(store.events.events(after_seq=1))
    assert not (await asyncio.wait({reading}, timeout=0.05))[0]
    await transaction.commit()
    assert [event.title for event in await reading] == ["2", "3"]


async def test_a_seq_that_was_never_written_does_not_stop_a_reader(
    store: PostgresStore, aside: Any
) -> None:
    await store.events.add_events([Event("a", "1", at=NOW)])
    await aside.execute(
        "select nextval(pg_get_serial_sequence('cluster_events', 'seq'))"
    )
    await store.events.add_events([Event("a", "3", at=NOW), Event("a", "4", at=NOW)])
    found = await store.events.events(after_seq=1)
    assert [(event.seq, event.title) for event in found] == [(3, "3"), (4, "4")]


@pytest.mark.parametrize(
    "tampering",
    [
        "update audit set actor = 'nobody' where seq = 2",
        "update audit set at = at + interval '1 second' where seq = 3",
        "update audit set hash = repeat('0', 64) where seq = 2",
        "delete from audit where seq = 1",
        "delete from audit where seq = 2",
        "delete from audit where seq = 3",
    ],
)
async def test_a_changed_or_missing_audit_row_breaks_the_chain(
    store: PostgresStore, aside: Any, tampering: str
) -> None:
    row = AuditRow(NOW, "key:k1", "task.cancel", "t", True, "127.0.0.1", "r", {"a": 1})
    await asyncio.gather(*(store.access.add_audit([row]) for _ in range(3)))
    assert (await store.access.check_audit()).is_intact
    await aside.execute(tampering)
    assert not (await store.access.check_audit()).is_intact


LONG = f'["{"a" * SHORT}"]'


def names(folder: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in folder.glob(pattern))


def remove(folder: Path, pattern: str) -> None:
    for path in folder.glob(pattern):
        path.unlink()


async def test_log_chunks_are_files_in_the_object_folder(
    store: PostgresStore, term: int, tmp_path: Path, aside: Any
) -> None:
    await store.tasks.insert_tasks(term, [assigned(make_task("one"))])
    await store.tasks.settle_tasks(term, [settlement("one")])
    await store.output.add_logs([LogChunk("one", 1, n, LONG) for n in (1, 2)])
    await store.output.add_logs([LogChunk("../../up", 1, 1, LONG)])
    await store.output.add_logs([LogChunk("one", 1, 3, '["short"]')])
    assert names(tmp_path, "objects/logs/??/one/*") == ["1-1.json", "1-2.json"]
    assert len(names(tmp_path, "**/*.json")) == 3
    assert (
        await aside.fetchval("select count(*) from log_chunks where lines is null") == 3
    )
    await store.prune(later(99), Retention(1, 1, 1, 1))
    assert not names(tmp_path, "objects/logs/??/one")


async def test_a_log_file_that_was_removed_reads_as_empty(
    store: PostgresStore, tmp_path: Path
) -> None:
    await store.output.add_logs([LogChunk("one", 1, 1, LONG)])
    remove(tmp_path, "objects/logs/??/one/*")
    assert await store.output.logs("one") == [LogChunk("one", 1, 1, "[]")]


async def test_thousands_of_tasks_pass_in_a_few_statements(
    store: PostgresStore, term: int, record_property: Callable[[str, Any], None]
) -> None:
    tasks = [assigned(make_task()) for _ in range(5000)]
    began = time.perf_counter()
    for start in range(0, 5000, 1000):
        inserted = await store.tasks.insert_tasks(term, tasks[start : start + 1000])
        assert len(inserted.created) == 1000
    for start in range(0, 5000, 200):
        batch = [settlement(task.id) for task in tasks[start : start + 200]]
        assert len(await store.tasks.settle_tasks(term, batch)) == 200
    record_property("tasks_per_s", 5000 / (time.perf_counter() - began))
    assert await store.tasks.count_tasks() == {State.COMPLETED: 5000}
    assert len(await store.events.events(limit=100)) == 30


@pytest.mark.parametrize("name", ["INSERT", "PLACE", "START", "SETTLE", "REQUEUE"])
async def test_hot_statements_find_their_rows_by_key_in_a_table_never_analysed(
    store: PostgresStore, name: str
) -> None:
    query = f"explain (generic_plan) {getattr(sql, name)}"
    nothing = [None] * len(set(re.findall(r"\$\d+", query)))
    plan = "\n".join(row[0] for row in await store._submits.fetch(query, *nothing))
    assert "Seq Scan on tasks" not in plan
    assert "tasks_live" not in plan
    assert ("Index Scan using tasks_pkey" in plan) == (name != "INSERT")


@pytest.mark.spec("A2", "D15")
async def test_a_pool_of_one_serves_all_who_wait_in_turn_and_measures_them(
    url: str, aside: Any
) -> None:
    store = PostgresStore(url, pool_size=1)
    await store.open()
    served: list[int] = []
    told: list[str] = []
    store.measure(lambda name, seconds: told.append(name))

    async def ask(number: int) -> None:
        for _ in range(3):
            await store.registry.nodes()
            served.append(number)

    await asyncio.gather(*(ask(number) for number in range(20)))
    mine = f"{OURS} and application_name = 'corral'"
    query = f"select count(*) from pg_stat_activity where {mine}"
    assert await aside.fetchval(query) == 1 + len(store._lanes())
    await store.close()
    assert served == [*range(20)] * 3
    assert told == ["pool"] * 60


async def test_beats_do_not_wait_for_a_worker_that_is_being_written(
    store: PostgresStore, url: str
) -> None:
    spec = WorkerSpec("one", "corral:EchoWorker", ("echo",))
    await store.registry.save_node(NodeRecord("n1", "box"))
    await store.registry.save_workers(
        [WorkerRecord(id_, "n1", spec) for id_ in ("w2", "w1")]
    )
    other = await asyncpg.connect(url)
    async with asyncio.timeout(10), other.transaction():
        await other.execute("update workers set pid = 1 where id = 'w1'")
        await store.metrics.save_beats(["n1"], NOW, [])
    await other.close()
    assert [w.last_heartbeat for w in await store.registry.workers()] == [None, NOW]
    await store.metrics.save_beats(["n1"], later(10), [])
    assert {w.last_heartbeat for w in await store.registry.workers()} == {later(10)}
