"""Reads: one task, pages of them, counts, what is live, and logs."""

from __future__ import annotations

import pytest

from corral.core.tasks.outcome import OutcomeKind
from corral.core.tasks.task import State, Task
from corral.errors import InvalidField
from corral.store.base import LogChunk, Store, TaskFilter
from tests.contract.conftest import Insert, assigned, make_task, settlement

ALL = TaskFilter()
wherever_logs_are = pytest.mark.parametrize(
    "unopened", ["memory", "postgres", "logs in rows"], indirect=True
)


async def test_unknown_ids_are_simply_not_found(store: Store, insert: Insert) -> None:
    (task,) = await insert(make_task())
    assert await store.tasks.get_task("nobody") is None
    assert await store.tasks.get_task("\ud800") is None
    assert await store.tasks.get_task("a\x00") is None
    assert await store.tasks.get_tasks([]) == []
    assert await store.tasks.get_tasks([task.id, task.id, "nobody", "\ud800"]) == [task]


async def test_a_list_shows_the_newest_first(store: Store, insert: Insert) -> None:
    tasks = await insert(*(make_task() for _ in range(5)))
    page = await store.tasks.list_tasks(ALL, limit=10)
    assert list(page.tasks) == tasks[::-1]
    assert (page.total, page.next_cursor) == (5, None)


async def test_offset_pages_cut_one_list(store: Store, insert: Insert) -> None:
    tasks = (await insert(*(make_task() for _ in range(7))))[::-1]
    for offset in (0, 3, 6):
        page = await store.tasks.list_tasks(ALL, limit=3, offset=offset)
        assert list(page.tasks) == tasks[offset : offset + 3]
        assert page.total == 7
    beyond = await store.tasks.list_tasks(ALL, limit=3, offset=9)
    assert (beyond.tasks, beyond.total, beyond.next_cursor) == ((), 7, None)


async def test_cursor_pages_meet_every_task_once_while_new_ones_come(
    store: Store, insert: Insert
) -> None:
    tasks = (await insert(*(make_task() for _ in range(6))))[::-1]
    seen: list[Task] = []
    cursor = None
    while True:
        page = await store.tasks.list_tasks(ALL, limit=2, cursor=cursor)
        seen += page.tasks
        await insert(make_task())
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == tasks


async def test_a_full_last_page_has_no_cursor(store: Store, insert: Insert) -> None:
    await insert(make_task(), make_task())
    assert (await store.tasks.list_tasks(ALL, limit=2)).next_cursor is None


@pytest.mark.parametrize("cursor", ["", "x", "ÿ", "!!!!", "LTE", "OTk5" * 20])
async def test_a_foreign_cursor_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(InvalidField) as raised:
        await store.tasks.list_tasks(ALL, limit=2, cursor=cursor)
    assert raised.value.field == "cursor"


async def test_each_filter_chooses(store: Store, term: int, insert: Insert) -> None:
    tasks = await insert(
        make_task("a", owner="me", labels={"team": "x", "k": "v"}, model="m-x"),
        make_task("b", job_type="sleep", labels={"team": "x"}),
        assigned(make_task("c", labels={"team": "y"}), "w7"),
        assigned(make_task("d"), "w7"),
    )
    assert len(tasks) == 4
    dead = settlement(
        "d", state=State.FAILED, outcome=OutcomeKind.FAILED, dead_letter="failed"
    )
    await store.tasks.settle_tasks(term, [dead])
    for where, names in (
        (TaskFilter(states=(State.QUEUED,)), "ab"),
        (TaskFilter(states=(State.ASSIGNED, State.FAILED)), "cd"),
        (TaskFilter(job_type="sleep"), "b"),
        (TaskFilter(worker_id="w7"), "cd"),
        (TaskFilter(owner="me"), "a"),
        (TaskFilter(labels={"team": "x"}), "ab"),
        (TaskFilter(labels={"team": "x", "k": "v"}), "a"),
        (TaskFilter(labels={"team": "X"}), ""),
        (TaskFilter(dead_letter=True), "d"),
        (TaskFilter(text="SLEE"), "b"),
        (TaskFilter(text="%"), ""),
        (TaskFilter(model="m-x"), "a"),
        (TaskFilter(model="m"), ""),
        (TaskFilter(dead_letter=False), "abc"),
        (TaskFilter(states=(State.QUEUED,), labels={"team": "y"}), ""),
    ):
        page = await store.tasks.list_tasks(where, limit=10)
        assert [task.id for task in page.tasks] == list(names)[::-1], where
        assert page.total == len(names)


async def test_counts_are_by_state(store: Store, term: int, insert: Insert) -> None:
    assert not await store.tasks.count_tasks()
    tasks = await insert(make_task(), make_task(), assigned(make_task()))
    await store.tasks.settle_tasks(term, [settlement(tasks[2].id)])
    assert await store.tasks.count_tasks() == {State.QUEUED: 2, State.COMPLETED: 1}


async def test_live_tasks_come_in_order_without_their_payload(
    store: Store, term: int, insert: Insert
) -> None:
    tasks = await insert(*(assigned(make_task()) for _ in range(4)), make_task())
    await store.tasks.settle_tasks(term, [settlement(tasks[1].id)])
    live = await store.tasks.live_tasks()
    assert [task.id for task in live] == [tasks[i].id for i in (0, 2, 3, 4)]
    assert {task.spec.payload for task in live} == {""}
    assert live[0].worker_id == "w1"


@wherever_logs_are
async def test_log_chunks_come_back_in_order_after_a_place(store: Store) -> None:
    chunks = [
        LogChunk("one", attempt, seq, f'[[1.5, "stdout", "{attempt}.{seq} ü"]]')
        for attempt in (1, 2)
        for seq in (1, 2, 10)
    ]
    await store.output.add_logs(chunks[::-1])
    await store.output.add_logs([LogChunk("two", 1, 1, "[]")])
    assert await store.output.logs("one") == chunks
    assert await store.output.logs("one", after=(1, 10)) == chunks[3:]
    assert await store.output.logs("one", after=(1, 1), limit=2) == chunks[1:3]
    assert await store.output.logs("one", after=(2, 10)) == []
    assert await store.output.logs("nobody") == []
    assert await store.output.logs("one", attempt=2) == chunks[3:]
    assert await store.output.logs("one", after=(1, 2), attempt=1) == chunks[2:3]
    assert await store.output.log_end("one") == (2, 10)
    assert await store.output.log_end("one", attempt=1) == (1, 10)
    assert await store.output.log_end("one", attempt=3) is None
    assert await store.output.log_end("nobody") is None


@wherever_logs_are
async def test_a_page_of_the_log_has_a_size_and_one_chunk_at_least(
    store: Store,
) -> None:
    chunks = [LogChunk("one", 1, seq, "ü" * 50) for seq in range(1, 10)]
    await store.output.add_logs(chunks)
    assert await store.output.logs("one", limit_bytes=1) == chunks[:1]
    assert await store.output.logs("one", limit_bytes=100) == chunks[:1]
    assert await store.output.logs("one", limit_bytes=101) == chunks[:2]
    assert await store.output.logs("one", after=(1, 5), limit_bytes=300) == chunks[5:8]
    assert await store.output.logs("one", limit_bytes=1 << 20) == chunks


@wherever_logs_are
async def test_a_log_chunk_sent_again_changes_nothing(store: Store) -> None:
    chunk = LogChunk("one", 1, 1, '[[1, "stdout", "first"]]')
    await store.output.add_logs([chunk])
    await store.output.add_logs(
        [LogChunk("one", 1, 1, "[]"), LogChunk("one", 1, 2, "[]")]
    )
    assert [c.lines for c in await store.output.logs("one")] == [chunk.lines, "[]"]
    await store.output.add_logs([])


@pytest.mark.parametrize(
    "task_id", ["../../../up", "/abs", "..", "a/../../b", "Case", "c:\\x", "é" * 99]
)
async def test_a_task_id_is_only_a_name_in_the_log_folder(
    store: Store, task_id: str
) -> None:
    await store.output.add_logs([LogChunk(task_id, 1, 1, '["mine"]')])
    await store.output.add_logs([LogChunk(task_id.lower() + "-", 1, 1, '["other"]')])
    assert [c.lines for c in await store.output.logs(task_id)] == ['["mine"]']
