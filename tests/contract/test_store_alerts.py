"""Events by what they are about, and alerts: open until acknowledged and resolved."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import asyncpg

from corral.core.insight.event import ALERT, EventQuery
from corral.store.base import Event, Store
from corral.store.postgres.store import PostgresStore
from tests.contract.conftest import NOW, empty, later
from tests.contract.test_store_history import KEEP

LOST = Event(
    ALERT,
    "n1 is lost",
    "error",
    "n1",
    data={"rule": "node_lost", "subject": "n1"},
    at=NOW,
)
FULL = replace(LOST, title="disk of n2", severity="warning", source_node_id="n2")
HELLO = Event("node_joined", "n1 joined", source_node_id="n1", at=NOW)
OPEN = EventQuery(is_open=True)


async def titles(store: Store, after: int = 0, limit: int = 10, **where: object) -> str:
    page = await store.events.event_page(EventQuery(**where), after, limit)  # type: ignore[arg-type]
    return ", ".join(event.title for event in page.events)


async def test_events_are_chosen_by_type_severity_and_node(store: Store) -> None:
    await store.events.add_events([HELLO, LOST, FULL])
    assert await titles(store) == "n1 joined, n1 is lost, disk of n2"
    assert await titles(store, node_id="n1") == "n1 joined, n1 is lost"
    assert await titles(store, event_types=(ALERT,), limit=1) == "disk of n2"
    assert await titles(store, severities=("error", "critical")) == "n1 is lost"
    assert (
        await titles(store, node_id="n1", event_types=("node_joined",)) == HELLO.title
    )
    assert await titles(store, node_id="\ud800") == ""
    assert await titles(store, after=1, node_id="n1") == "n1 is lost"
    assert await titles(store, after=3) == ""


async def test_events_of_tasks_may_be_left_out(store: Store) -> None:
    settled = Event("tasks_settled", "2 settled", task_ids=("a", "b"))
    await store.events.add_events([HELLO, settled, settled, LOST, settled])
    assert await titles(store, limit=2) == "n1 is lost, 2 settled"
    assert await titles(store, limit=2, with_tasks=False) == "n1 joined, n1 is lost"
    assert await titles(store, after=1, with_tasks=False) == "n1 is lost"


async def test_a_page_tells_where_to_go_on_although_others_lie_between(
    store: Store,
) -> None:
    assert (await store.events.event_page(EventQuery())).next == 0
    await store.events.add_events([LOST, HELLO, HELLO, FULL, FULL, HELLO])
    alerts = EventQuery(event_types=(ALERT,))
    first = await store.events.event_page(alerts, 1, 1)
    assert ([e.seq for e in first.events], first.next) == ([4], 4)
    second = await store.events.event_page(alerts, first.next, 2)
    assert ([e.seq for e in second.events], second.next) == ([5], 6)
    assert await store.events.event_page(alerts, 6) == replace(
        second, events=(), next=6
    )
    newest = await store.events.event_page(alerts, 0, 1)
    assert ([e.seq for e in newest.events], newest.next) == ([5], 6)


async def test_an_alert_is_open_until_it_is_resolved(store: Store) -> None:
    await store.events.add_events([LOST, HELLO, FULL])
    assert [e.seq for e in await store.events.alerts(OPEN)] == [3, 1]
    assert [e.seq for e in await store.events.alerts(OPEN, limit=1)] == [3]
    await store.events.resolve_alerts([1, 2], later(5))
    await store.events.resolve_alerts([1], later(9))
    await store.events.resolve_alerts([], later(9))
    assert [e.seq for e in await store.events.alerts(OPEN)] == [3]
    both = await store.events.alerts(EventQuery())
    assert [e.resolved_at for e in both] == [None, later(5)]
    (ended,) = await store.events.alerts(
        EventQuery(is_open=False, severities=("error",))
    )
    assert ended == replace(LOST, seq=1, resolved_at=later(5))
    assert (await store.events.events(1, 1))[0].resolved_at is None


async def test_the_first_to_acknowledge_an_alert_is_remembered(store: Store) -> None:
    await store.events.add_events([LOST, HELLO, FULL])
    seen = await store.events.acknowledge_alert(
        1, "key a\x00", later(1), "I look at it"
    )
    assert seen is not None
    assert (seen.acknowledged_by, seen.acknowledged_at) == ("key a\ufffd", later(1))
    assert seen.data == {**LOST.data, "note": "I look at it"}
    assert await store.events.acknowledge_alert(1, "b", later(2), "me too") == seen
    assert (await store.events.alerts(OPEN))[1] == seen
    assert await store.events.acknowledge_alert(2, "b", later(2)) is None
    assert await store.events.acknowledge_alert(99, "b", later(2)) is None
    await store.events.resolve_alerts([3], later(3))
    late = await store.events.acknowledge_alert(3, "b", later(4))
    assert late is not None
    assert (late.acknowledged_at, late.resolved_at) == (None, later(3))


async def test_an_open_alert_becomes_worse_and_keeps_what_else_is_known(
    store: Store,
) -> None:
    await store.events.add_events([FULL, HELLO])
    await store.events.acknowledge_alert(1, "a", later(1), "mine")
    await store.events.worsen_alert(
        1, "critical", "disk of n2 is\x00 full", {"value": 99.0}
    )
    (worse,) = await store.events.alerts(OPEN)
    assert (worse.severity, worse.title) == ("critical", "disk of n2 is\ufffd full")
    assert worse.data == {**FULL.data, "note": "mine", "value": 99.0}
    assert worse.acknowledged_by == "a"
    await store.events.worsen_alert(2, "critical", "no alert", {})
    await store.events.resolve_alerts([1], later(2))
    await store.events.worsen_alert(1, "error", "too late", {})
    rows = await store.events.events()
    assert [row.severity for row in rows] == ["critical", "info"]


async def test_an_open_alert_is_kept_however_old_it_is(store: Store) -> None:
    await store.events.add_events([LOST, HELLO, FULL])
    await store.events.resolve_alerts([3], later(1))
    gone = await store.prune(later(100_000), KEEP)
    assert gone == {"cluster_events": 2}
    assert [event.title for event in await store.events.events()] == [LOST.title]


async def test_a_page_misses_none_that_is_committed_late(database_url: str) -> None:
    store = PostgresStore(database_url)
    await store.open()
    await empty(database_url)
    aside = await asyncpg.connect(database_url)
    await store.events.add_events([LOST])
    transaction = aside.transaction()
    await transaction.start()
    await aside.execute(
        "insert into cluster_events (at, event_type, title) values (now(), 'a', '2')"
    )
    await store.events.add_events([HELLO, FULL])
    reading = asyncio.create_task(
        store.events.event_page(EventQuery(event_types=("a",)), 1)
    )
    assert not (await asyncio.wait({reading}, timeout=0.05))[0]
    await transaction.commit()
    page = await reading
    assert ([event.title for event in page.events], page.next) == (["2"], 4)
    await aside.close()
    await store.close()
