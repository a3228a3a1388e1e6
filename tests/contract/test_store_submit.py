"""Submits: what is created, what was there already, what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corral.core.tasks.task import Overlap, State, Task, TaskSpec
from corral.errors import NotLeader
from corral.store.base import Store
from tests.contract.conftest import NOW, Insert, assigned, later, make_task


async def test_a_stored_task_comes_back_with_every_field(
    store: Store, insert: Insert
) -> None:
    spec = TaskSpec(
        id="T.1:a_b-c",
        job_type="echo",
        payload='{"text": "\\u0000 \\ud800 ünïcode 🐎", "n": 1e400}',
        priority=-7,
        model="llama",
        timeout_s=12.5,
        retries=3,
        run_after=later(60),
        deadline=later(600),
        idempotency_key="key-1",
        labels={"team": 'a "quoted" \\ {one}', "nul": "\x00", "lone": "\ud800"},
        depends_on=("a", 'b"\\,{}'),
        overlap=Overlap.NEVER,
        owner="me",
    )
    (task,) = await insert(assigned(Task(spec, State.QUEUED, NOW)))
    assert await store.tasks.get_task("T.1:a_b-c") == task


async def test_created_tasks_get_rising_seqs_in_the_order_sent(
    store: Store, term: int
) -> None:
    tasks = [make_task() for _ in range(50)]
    created = (await store.tasks.insert_tasks(term, tasks)).created
    assert list(created) == [task.id for task in tasks]
    assert sorted(created.values()) == list(created.values())
    assert len(set(created.values())) == 50


async def test_mixed_batches_keep_each_task_s_own_values(
    store: Store, insert: Insert
) -> None:
    tasks = await insert(
        make_task(),
        make_task(priority=5, labels={"a": "b"}, retries=2, owner="me"),
        assigned(make_task(timeout_s=1.0, depends_on=("x",))),
        replace(make_task(), run=2, attempt=4, tries=1, losses=1),
    )
    found = await store.tasks.get_tasks([task.id for task in tasks])
    assert sorted(found, key=lambda task: task.seq) == tasks


async def test_a_known_id_is_answered_with_the_task_that_has_it(
    store: Store, term: int, insert: Insert
) -> None:
    (first,) = await insert(make_task("one"))
    again = make_task("one", payload='"other"')
    inserted = await store.tasks.insert_tasks(term, [again, make_task("two")])
    assert inserted.existing == {"one": first}
    assert list(inserted.created) == ["two"]
    assert await store.tasks.get_task("one") == first


async def test_a_known_idempotency_key_is_answered_with_its_task(
    store: Store, term: int, insert: Insert
) -> None:
    (first,) = await insert(make_task("one", idempotency_key="k", owner="me"))
    inserted = await store.tasks.insert_tasks(
        term,
        [
            make_task("two", idempotency_key="k", owner="me"),
            make_task("three", idempotency_key="k", owner="you"),
        ],
    )
    assert inserted.existing == {"two": first}
    assert list(inserted.created) == ["three"]
    assert await store.tasks.get_task("two") is None


async def test_one_batch_with_a_key_twice_creates_one_task(
    store: Store, term: int
) -> None:
    tasks = [make_task(name, idempotency_key="k") for name in ("one", "two")]
    inserted = await store.tasks.insert_tasks(term, tasks)
    assert list(inserted.created) == ["one"]
    assert inserted.existing["two"].id == "one"


async def test_one_batch_with_an_id_twice_creates_one_task(
    store: Store, term: int
) -> None:
    twice = [make_task("one", payload="1"), make_task("one", payload="2")]
    inserted = await store.tasks.insert_tasks(term, twice)
    assert list(inserted.created) == ["one"]
    assert not inserted.existing
    task = await store.tasks.get_task("one")
    assert task is not None
    assert task.spec.payload == "1"


@pytest.mark.parametrize(
    "bad",
    [
        make_task("bad", payload='"\x00"'),
        make_task("bad", payload='"\ud800"'),
        make_task("bad", idempotency_key="\udfff"),
        make_task("bad", model="a\x00b"),
        make_task("bad", retries=2**40),
        make_task("bad", depends_on=("\x00",)),
    ],
    ids=["nul", "lone surrogate", "bad key", "bad model", "huge number", "bad need"],
)
async def test_a_row_that_cannot_be_stored_is_refused_alone(
    store: Store, term: int, bad: Task
) -> None:
    good = [make_task() for _ in range(100)]
    inserted = await store.tasks.insert_tasks(term, [*good[:70], bad, *good[70:]])
    assert list(inserted.rejected) == ["bad"]
    assert inserted.rejected["bad"]
    assert inserted.created.keys() == {task.id for task in good}
    assert await store.tasks.get_task("bad") is None


async def test_several_bad_rows_leave_the_good_ones_alone(
    store: Store, term: int
) -> None:
    bad = [make_task(payload="\x00") for _ in range(5)]
    good = [make_task() for _ in range(20)]
    mixed = [task for pair in zip(bad, good, strict=False) for task in pair]
    inserted = await store.tasks.insert_tasks(term, [*mixed, *good[5:]])
    assert inserted.rejected.keys() == {task.id for task in bad}
    assert inserted.created.keys() == {task.id for task in good}


async def test_a_deposed_leader_stores_nothing(store: Store, term: int) -> None:
    await store.take_lead("manager-2", NOW)
    with pytest.raises(NotLeader) as raised:
        await store.tasks.insert_tasks(term, [make_task("one")])
    assert raised.value.term == term + 1
    assert await store.tasks.get_task("one") is None
    assert await store.events.events() == []


async def test_a_store_nobody_leads_is_written_by_nobody(store: Store) -> None:
    with pytest.raises(NotLeader):
        await store.tasks.insert_tasks(7, [make_task("one")])
    assert await store.term() == 0


async def test_taking_the_lead_raises_the_term(store: Store) -> None:
    assert await store.take_lead("a", NOW) == 1
    assert await store.take_lead("b", NOW) == 2
    assert await store.term() == 2


async def test_an_empty_batch_is_no_work(store: Store, term: int) -> None:
    assert not (await store.tasks.insert_tasks(term, [])).created
    assert await store.tasks.place_tasks(term, [], NOW) == {}
    assert await store.tasks.start_tasks(term, []) == set()
    assert await store.tasks.settle_tasks(term, []) == set()
    assert await store.events.events() == []


async def test_ping_answers_from_a_living_store(store: Store) -> None:
    await store.ping()
