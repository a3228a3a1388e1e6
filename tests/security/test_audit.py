"""The audit trail can be read by admins, and changed by nobody unseen."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC
from typing import Any

import asyncpg
import pytest

from corral.core.access.audit import AuditRow
from corral.doctor.manager import ManagerFact, judge
from corral.errors import StoreUnavailable
from corral.manager.access.audit import MOST
from corral.store.postgres.store import PostgresStore
from tests.contract.conftest import NOW, PostgresServer
from tests.twins.store import MemoryStore
from tests.unit.api.world import Caller, World, fault, quiet, running, said

KEY = b"follows from the secret of the cluster"
ROW = AuditRow(NOW, "k1", "task.cancel", "t", True, "127.0.0.1", "r", {"a": 1})
ENDS = "update audit_chain set "


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running() as made:
        yield made


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def url(server: PostgresServer) -> str:
    return server.new_database()


@pytest.fixture
async def sql(url: str) -> AsyncIterator[Any]:
    """Whoever can write the database, and knows no key."""
    connection = await asyncpg.connect(url)
    yield connection
    await connection.execute("delete from audit")
    await connection.execute(
        f"{ENDS} first_seq = 1, anchor = '', last_seq = 0, last_hash = '', seal = ''"
    )
    await connection.close()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(url, audit_key=KEY)
    await made.open()
    yield made
    await made.close()


async def is_whole(store: PostgresStore) -> bool:
    return (await store.access.check_audit()).is_intact


@pytest.mark.parametrize(
    "attack",
    [
        ["update audit set target = 'other' where seq = 2"],
        ["update audit set data = '{}' where seq = 2"],
        ["delete from audit where seq = 2"],
        ["delete from audit where seq = 3"],
        [
            "delete from audit where seq = 3",
            f"{ENDS} last_seq = 2, last_hash = (select hash from audit where seq = 2)",
        ],
        [
            f"{ENDS} first_seq = 2, anchor = (select hash from audit where seq = 1)",
            "delete from audit where seq = 1",
        ],
        [f"{ENDS} keyed_from = 4"],
        [f"{ENDS} seal = ''"],
        ["delete from audit", f"{ENDS} last_seq = 0, last_hash = '', seal = ''"],
    ],
)
async def test_m11_a_change_by_sql_is_found_and_stays_so(
    store: PostgresStore, sql: Any, attack: list[str]
) -> None:
    await store.access.add_audit([ROW, ROW, ROW])
    assert await is_whole(store)
    for statement in attack:
        await sql.execute(statement)
    assert not await is_whole(store)
    # What is written next does not cover it up.
    await store.access.add_audit([ROW])
    assert not await is_whole(store)


async def test_m11_all_hashes_written_anew_without_the_key_are_found(
    store: PostgresStore, sql: Any
) -> None:
    await store.access.add_audit([ROW, ROW, ROW])
    await sql.execute("update audit set actor = 'somebody else' where seq = 2")
    last = await _write_anew(sql)
    await sql.execute(f"{ENDS} last_hash = $1", last)
    assert not await is_whole(store)
    await sql.execute(f"{ENDS} keyed_from = 4")
    assert not await is_whole(store)


async def test_m11_another_key_makes_no_row_that_fits(
    store: PostgresStore, url: str, sql: Any
) -> None:
    await store.access.add_audit([ROW])
    other = PostgresStore(url, audit_key=b"guessed")
    await other.open()
    await other.access.add_audit([ROW])
    await other.close()
    assert not await is_whole(store)


async def test_m11_rows_of_before_are_taken_over_and_told_apart(
    url: str, sql: Any
) -> None:
    """As a database is after its upgrade, before a manager has opened it."""
    first = PostgresStore(url, audit_key=KEY)
    await first.open()
    await first.access.add_audit([ROW, ROW])
    await first.close()
    last = await _write_anew(sql)
    await sql.execute(f"{ENDS} last_hash = $1, keyed_from = 0, seal = ''", last)
    store = PostgresStore(url, audit_key=KEY)
    await store.open()
    await store.access.add_audit([ROW])
    report = await store.access.check_audit()
    assert (report.is_intact, report.keyed_from) == (True, 3)
    await sql.execute("update audit set target = 'other' where seq = 1")
    assert not await is_whole(store)
    await store.close()


async def _write_anew(sql: Any) -> str:
    """Every hash as anybody can make it; the last one."""
    before = ""
    for row in await sql.fetch("select * from audit order by seq"):
        at = row["at"].astimezone(UTC).isoformat(timespec="microseconds")
        names = ("actor", "action", "target", "allowed", "ip", "request_id", "data")
        text = json.dumps(
            [row["seq"], at, *(row[name] for name in names)], separators=(",", ":")
        )
        before = hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()
        await sql.execute(
            "update audit set hash = $1 where seq = $2", before, row["seq"]
        )
    return before


async def test_m11_a_break_is_an_event_an_alert_and_a_line_of_the_doctor() -> None:
    kept = MemoryStore()
    async with running(inner=kept) as world:
        await world.admin.tell("/keys", {"name": "ann"})
        assert (await world.admin.ask("/audit/check"))["is_intact"] is True
        kept._tables.audit[0]["target"] = "other"
    async with running(inner=kept) as world:
        # Nobody asked: it looks by itself when it starts.
        await quiet()
        told = (await world.read.ask("/events", type="audit_broken"))["events"]
        assert [event["severity"] for event in told] == ["critical"]
        await world.manager.alerts.watch.step()
        rules = [alert["rule"] for alert in (await world.read.ask("/alerts"))["alerts"]]
        assert "audit_broken" in rules
        page = await world.admin.ask("/audit", limit=1)
        assert page["is_intact"] is False
    fact = ManagerFact("http://m", "1.0", is_audit_intact=False)
    (line,) = [line for line in judge(fact, "1.0") if line.name == "audit"]
    assert "corral audit --verify" in (line.fix or "")


async def test_m11_an_older_state_that_is_put_back_is_missed(world: World) -> None:
    audit = world.manager.access.audit
    await audit.flush()
    tables = world.store.inner._tables
    old = copy.deepcopy(tables.audit), tables.chain
    await world.admin.tell("/keys", {"name": "ann"})
    await audit.flush()
    tables.audit, tables.chain = old
    assert not (await audit.check()).is_intact


async def test_m11_only_an_admin_reads_it_by_who_what_and_when(world: World) -> None:
    for who in (world.operate, world.submit, world.read, world.nobody):
        assert (await who.get("/audit")).status_code in (401, 403)
        assert (await who.get("/audit/check")).status_code in (401, 403)
    key = (await world.admin.tell("/keys", {"name": "ann"}))["key"]
    await Caller(world.http, key).post("/keys", {"name": "mine"})
    world.clock.step(3600)
    await world.admin.tell("/keys", {"name": "bob"})
    made = (await world.admin.ask("/audit", action="key."))["rows"]
    assert [row["data"]["name"] for row in made] == ["bob", "ann"]
    assert {row["name"] for row in made} == {"admin"}
    (refused,) = (await world.admin.ask("/audit", actor="ann"))["rows"]
    assert (refused["allowed"], refused["action"]) == (False, "POST /keys")
    recent = await world.admin.ask("/audit", action="key.", since="-60")
    assert [row["data"]["name"] for row in recent["rows"]] == ["bob"]
    answer = await world.admin.get("/audit", since="yesterday")
    fault(answer, 422, "invalid_field")


async def test_m11_pages_follow_each_other_without_a_gap(world: World) -> None:
    for number in range(5):
        await world.admin.tell("/keys", {"name": f"k{number}"})
    seen: list[str] = []
    query: dict[str, Any] = {"action": "key.", "limit": 2}
    while True:
        page = said(await world.admin.get("/audit", **query))
        seen += [row["data"]["name"] for row in page["rows"]]
        if page["cursor"] is None:
            break
        query["before"] = page["cursor"]
    assert seen == ["k4", "k3", "k2", "k1", "k0"]


async def test_m11_what_waits_for_the_store_is_bounded_and_stays_in_order(
    world: World,
) -> None:
    audit = world.manager.access.audit
    await audit.flush()
    world.store.is_down = True
    for number in range(MOST + 3):
        audit.note("me", "x.do", str(number), is_allowed=True)
    with pytest.raises(StoreUnavailable):
        await audit.flush()
    world.store.is_down = False
    await audit.flush()
    rows = (await world.admin.ask("/audit", actor="me", limit=3))["rows"]
    assert [int(row["target"]) for row in rows] == [MOST - 1, MOST - 2, MOST - 3]
    (lost,) = (await world.admin.ask("/audit", action="audit.lost"))["rows"]
    assert lost["target"] == "3 rows, while the store was away"
