"""History: one event a batch, an audit chain that shows tampering, retention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from corral.core.insight.event import EventQuery
from corral.core.tasks.outcome import OutcomeKind
from corral.core.tasks.task import State
from corral.store.base import AuditRow, Event, LogChunk, Retention, Store
from tests.contract.conftest import (
    NOW,
    Insert,
    assigned,
    later,
    make_task,
    place,
    settlement,
)
from tests.contract.test_store_registry import NODE, sample

KEEP = Retention(tasks_s=3600, events_s=3600, samples_s=3600, audit_s=3600)
AUDIT = AuditRow(NOW, "key:k1", "task.cancel", "task-1", True, "127.0.0.1", "r1")


async def events_of(store: Store, task_id: str, after: int = 0) -> list[Event]:
    return [*(await store.events.event_page(EventQuery(task_id), after)).events]


@pytest.mark.spec("A21")
async def test_each_batch_leaves_one_event_with_all_its_tasks(
    store: Store, term: int, insert: Insert
) -> None:
    tasks = await insert(*(make_task() for _ in range(20)))
    await store.tasks.place_tasks(term, [place(task) for task in tasks], later(1))
    await store.tasks.settle_tasks(term, [settlement(task.id) for task in tasks])
    await store.tasks.requeue_task(term, tasks[0].id, later(3))
    ids = tuple(task.id for task in tasks)
    events = await store.events.events()
    assert [(e.event_type, e.at, set(e.task_ids)) for e in events] == [
        ("tasks_submitted", NOW, set(ids)),
        ("tasks_assigned", later(1), set(ids)),
        ("tasks_settled", later(2), set(ids)),
        ("tasks_requeued", later(3), {ids[0]}),
    ]
    assert [event.seq for event in events] == [1, 2, 3, 4]
    assert events[0].data == {"states": ["queued"] * 20}
    assert events[1].data == {"attempts": [1] * 20, "workers": ["w1"] * 20}
    assert events[2].data == {"attempts": [1] * 20, "states": ["completed"] * 20}
    assert events[3].data == {"attempts": [2]}
    assert events[2].title == "20 settled"


async def test_the_arrays_of_an_event_run_side_by_side(
    store: Store, term: int, insert: Insert
) -> None:
    one, two = await insert(assigned(make_task()), assigned(make_task()))
    back = settlement(two.id, state=State.QUEUED, outcome=OutcomeKind.RETURNED)
    await store.tasks.settle_tasks(term, [settlement(one.id), back])
    event = (await store.events.events())[-1]
    states = dict(zip(event.task_ids, event.data["states"], strict=True))
    assert states == {one.id: "completed", two.id: "queued"}


async def test_events_come_back_as_they_were_added(store: Store) -> None:
    event = Event(
        event_type="node_lost",
        title="n1 is gone",
        severity="warning",
        source_node_id="n1",
        description="no beat for 20 s",
        data={"tasks": 3, "why": ["\x00", None]},
        task_ids=("a", "b"),
        at=NOW,
    )
    await store.events.add_events(
        [event, replace(event, title="n\x002", at=None, task_ids=())]
    )
    await store.events.add_events([])
    first, second = await store.events.events()
    assert first == replace(event, seq=1)
    assert second.title == "n\ufffd2"
    assert second.at is not None


async def test_events_are_read_on_from_a_seq_or_from_the_end(store: Store) -> None:
    await store.events.add_events([Event("a", str(n), at=NOW) for n in range(1, 8)])

    async def titles(after_seq: int, limit: int = 3) -> list[str]:
        return [event.title for event in await store.events.events(after_seq, limit)]

    assert await titles(0) == ["5", "6", "7"]
    assert await titles(2) == ["3", "4", "5"]
    assert await titles(5) == ["6", "7"]
    assert await titles(7) == []


async def test_a_cursor_is_kept_by_name_and_never_goes_back(store: Store) -> None:
    assert await store.events.cursor("one") is None
    for seq in (5, 3, 7):
        await store.events.save_cursor("one", seq)
    await store.events.save_cursor("two", 1)
    assert (await store.events.cursor("one"), await store.events.cursor("two")) == (
        7,
        1,
    )


async def test_the_events_of_one_task_are_found(
    store: Store, term: int, insert: Insert
) -> None:
    one, two = await insert(assigned(make_task()), assigned(make_task()))
    await store.tasks.settle_tasks(term, [settlement(one.id)])
    await store.tasks.settle_tasks(term, [settlement(two.id)])
    events = await events_of(store, one.id)
    assert [e.event_type for e in events] == ["tasks_submitted", "tasks_settled"]
    assert await events_of(store, two.id, 1)
    assert await events_of(store, "nobody") == []
    assert await events_of(store, "\ud800") == []


async def test_audit_rows_come_back_newest_first_and_the_chain_holds(
    store: Store,
) -> None:
    assert (await store.access.check_audit()).is_intact
    rows = [replace(AUDIT, request_id=f"r{n}", data={"n": n}) for n in range(5)]
    await store.access.add_audit(rows[:2])
    await store.access.add_audit([])
    await store.access.add_audit(rows[2:])
    assert await store.access.audit() == rows[::-1]
    assert await store.access.audit(limit=2) == rows[:2:-1]
    assert (await store.access.check_audit()).is_intact


async def test_audit_takes_whatever_a_caller_sent(store: Store) -> None:
    odd = replace(AUDIT, target="/\x00\ud800", allowed=False, data={"\ud800": "\x00"})
    await store.access.add_audit([odd])
    (row,) = await store.access.audit()
    assert row == replace(odd, target="/\ufffd\ufffd")
    assert (await store.access.check_audit()).is_intact


@pytest.mark.spec("B22")
async def test_pruning_deletes_what_is_past_its_time_and_nothing_else(
    store: Store, term: int, insert: Insert
) -> None:
    old, live, fresh = await insert(*(assigned(make_task()) for _ in range(3)))
    failed: dict[str, Any] = {"state": State.FAILED, "outcome": OutcomeKind.FAILED}
    await store.tasks.settle_tasks(term, [settlement(old.id, **failed)])
    await store.tasks.settle_tasks(
        term, [settlement(fresh.id, finished_at=later(5000), **failed)]
    )
    await store.output.add_logs([LogChunk(t.id, 1, 1, "[]") for t in (old, fresh)])
    await store.registry.save_node(NODE)
    await store.metrics.save_beats(
        ["n1"], NOW, [sample("n1", NOW), sample("n1", later(5000))]
    )
    await store.access.add_audit([AUDIT, replace(AUDIT, at=later(5000))])
    gone = await store.prune(later(5000), KEEP)
    assert gone == {
        "tasks": 1,
        "attempts": 1,
        "log_chunks": 1,
        "cluster_events": 2,
        "system_resources": 1,
        "audit": 1,
    }
    assert await store.tasks.get_task(old.id) is None
    assert (await store.tasks.attempts(old.id), await store.output.logs(old.id)) == (
        [],
        [],
    )
    assert await store.tasks.get_task(live.id) == live
    assert (
        len(await store.tasks.attempts(fresh.id))
        == len(await store.output.logs(fresh.id))
        == 1
    )
    assert await store.metrics.samples("n1", NOW) == [sample("n1", later(5000))]
    assert [row.at for row in await store.access.audit()] == [later(5000)]
    assert (await store.access.check_audit()).is_intact
    assert await store.prune(later(5000), KEEP) == {}


async def test_the_chain_goes_on_after_all_of_it_was_pruned(store: Store) -> None:
    await store.access.add_audit([AUDIT, AUDIT])
    await store.prune(later(9000), KEEP)
    assert await store.access.audit() == []
    assert (await store.access.check_audit()).is_intact
    await store.access.add_audit([AUDIT])
    assert (await store.access.check_audit()).is_intact


async def test_a_result_somebody_waits_for_is_not_pruned(
    store: Store, term: int, insert: Insert
) -> None:
    (need,) = await insert(assigned(make_task()))
    (waiter,) = await insert(make_task(depends_on=(need.id,)))
    await store.tasks.settle_tasks(term, [settlement(need.id)])
    await store.prune(later(9000), KEEP)
    assert await store.tasks.get_task(need.id) is not None
    cancel = settlement(waiter.id, state=State.CANCELLED, outcome=OutcomeKind.CANCELLED)
    await store.tasks.settle_tasks(term, [cancel])
    await store.prune(later(9000), KEEP)
    assert await store.tasks.get_task(need.id) is None


async def test_a_pruned_task_s_id_and_key_are_free_again(
    store: Store, term: int, insert: Insert
) -> None:
    (old,) = await insert(assigned(make_task("one", idempotency_key="k")))
    await store.tasks.settle_tasks(term, [settlement(old.id)])
    await store.prune(later(9000), KEEP)
    inserted = await store.tasks.insert_tasks(
        term, [make_task("one", idempotency_key="k")]
    )
    assert list(inserted.created) == ["one"]


async def test_pruning_goes_through_more_than_one_batch(
    store: Store, term: int, insert: Insert
) -> None:
    tasks = await insert(*(assigned(make_task()) for _ in range(2500)))
    await store.tasks.settle_tasks(term, [settlement(task.id) for task in tasks[:-1]])
    await store.events.add_events([Event("a", "b", at=NOW) for _ in range(1200)])
    gone = await store.prune(later(9000), KEEP)
    assert (gone["tasks"], gone["cluster_events"]) == (2499, 1202)
    assert [task.id for task in await store.tasks.live_tasks()] == [tasks[-1].id]
