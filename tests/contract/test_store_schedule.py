"""Schedules and notices: what survives a manager, and what two of them cannot undo."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from corral.core.tasks.needs import Need
from corral.core.tasks.options import ResultKey, SpecOptions
from corral.core.tasks.schedule import MissedPolicy, OverlapPolicy, Schedule
from corral.core.tasks.task import Overlap, TaskSpec
from corral.core.tasks.webhook import Notice
from corral.errors import NotLeader
from corral.store.base import Store
from tests.contract.conftest import NOW, Insert, later, make_task, settlement

NIGHTLY = Schedule(
    name="nightly",
    cron="0 3 * * *",
    task=TaskSpec(
        id="",
        job_type="echo",
        payload='{"text": "a\\u0000b"}',
        priority=5,
        model="llama",
        timeout_s=1.5,
        retries=2,
        labels={"team": "blue"},
        overlap=Overlap.NEVER,
        owner="k1",
        options=SpecOptions(
            notify=("http://a/",),
            node_labels={"disk": "ssd"},
            resources=Need(gpus=1, share=500, kinds=frozenset({"A", "B"})),
            question=ResultKey("k", "v", "m"),
        ),
    ),
    timezone="Europe/Berlin",
    missed=MissedPolicy.ALL,
    overlap=OverlapPolicy.SKIP,
    deadline_s=60.0,
    next_at=later(60),
    last_at=NOW,
    last_task_id="t1",
    note="left out",
    created_at=NOW,
)


async def test_schedules_come_back_as_they_were_saved(store: Store) -> None:
    other = Schedule("b", "@daily", task=TaskSpec("", "echo", "{}"))
    await store.queues.save_schedule(NIGHTLY)
    await store.queues.save_schedule(other)
    assert list(await store.queues.schedules()) == [other, NIGHTLY]
    changed = replace(NIGHTLY, next_at=None, note=None)
    await store.queues.save_schedule(changed)
    await store.queues.delete_schedule("b")
    await store.queues.delete_schedule("never\x00there")
    assert list(await store.queues.schedules()) == [changed]


async def test_a_note_with_any_character_is_kept(store: Store) -> None:
    await store.queues.save_schedule(replace(NIGHTLY, note="a\x00b\ud800"))
    (kept,) = await store.queues.schedules()
    assert kept.note is not None
    assert kept.note.startswith("a")


async def test_a_schedule_moves_on_only_from_the_time_it_was_planned_for(
    store: Store, term: int
) -> None:
    await store.queues.save_schedule(NIGHTLY)
    on = replace(NIGHTLY, next_at=later(120), last_at=later(60), cron="never this")
    assert await store.queues.advance_schedules(term, [(later(60), on)]) == {"nightly"}
    again = replace(NIGHTLY, next_at=later(900))
    assert await store.queues.advance_schedules(term, [(later(60), again)]) == set()
    (kept,) = await store.queues.schedules()
    assert kept == replace(on, cron=NIGHTLY.cron)


async def test_a_deposed_leader_moves_no_schedule(store: Store, term: int) -> None:
    await store.queues.save_schedule(NIGHTLY)
    await store.take_lead("manager-2", NOW)
    with pytest.raises(NotLeader):
        await store.queues.advance_schedules(term, [(later(60), NIGHTLY)])


def noted(task_id: str, *urls: str, **more: Any) -> Any:
    return make_task(
        task_id, labels={"a": "b"}, options=SpecOptions(notify=urls), **more
    )


async def test_a_task_is_stored_together_with_whom_to_tell(
    store: Store, insert: Insert
) -> None:
    url = 'https://hook.test/x?token=1&q="'
    await insert(noted("t1", url, "http://b/"), make_task("t2"), make_task("t3"))
    await insert(make_task("t4"))
    owed = [Notice("t1", "http://b/"), Notice("t1", url)]
    assert list(await store.queues.notices()) == owed
    assert list(await store.queues.notices(["t1", "x\x00"])) == owed
    assert list(await store.queues.notices(["t2"])) == []


async def test_a_task_that_was_there_before_makes_no_notice_again(
    store: Store, insert: Insert, term: int
) -> None:
    await insert(noted("t1", "http://b/", idempotency_key="k"))
    await store.queues.drop_notices([Notice("t1", "http://b/")])
    await store.tasks.insert_tasks(term, [noted("t1", "http://b/")])
    await store.tasks.insert_tasks(
        term, [noted("t2", "http://b/", idempotency_key="k")]
    )
    assert list(await store.queues.notices()) == []


async def test_how_often_a_notice_was_tried_is_kept_for_its_run_alone(
    store: Store, insert: Insert, term: int
) -> None:
    await insert(noted("t1", "http://b/"))
    tried = Notice("t1", "http://b/", 1, 3, NOW, later(60))
    await store.queues.save_notice(tried)
    assert list(await store.queues.notices()) == [tried]
    await store.tasks.settle_tasks(term, [settlement("t1")])
    await store.tasks.requeue_task(term, "t1", later(9))
    fresh = Notice("t1", "http://b/", 2)
    assert list(await store.queues.notices()) == [fresh]
    await store.queues.save_notice(tried)
    await store.queues.drop_notices([tried])
    assert list(await store.queues.notices()) == [fresh]
    await store.queues.drop_notices([fresh])
    assert list(await store.queues.notices()) == []


async def test_requeueing_makes_the_notices_of_the_next_run(
    store: Store, insert: Insert, term: int
) -> None:
    await insert(noted("t1", "http://b/"), make_task("t2"))
    await store.queues.drop_notices([Notice("t1", "http://b/")])
    await store.tasks.settle_tasks(term, [settlement("t1"), settlement("t2")])
    for task_id in ("t1", "t2"):
        await store.tasks.requeue_task(term, task_id, later(9))
    assert list(await store.queues.notices()) == [Notice("t1", "http://b/", 2)]
