"""Which files are kept for which task, on both stores."""

from __future__ import annotations

from dataclasses import replace

from corral.core.tasks.outcome import OutcomeKind
from corral.core.tasks.task import State, Task
from corral.store.base import ARTIFACTS, CHECKPOINT, KeptTree, Retention, Store
from tests.contract.conftest import NOW, assigned, later, make_task, settlement

A, B = "a" * 64, "b" * 64


def kept(task_id: str, kind: str = ARTIFACTS, attempt: int = 1) -> KeptTree:
    return KeptTree(task_id, kind, attempt, A, 3, 1 << 40, "one left out", NOW)


async def settled(store: Store, term: int, done: Task, failed: Task) -> None:
    end = settlement(failed.id, state=State.FAILED, outcome=OutcomeKind.FAILED)
    await store.tasks.settle_tasks(term, [settlement(done.id), end])


async def test_trees_come_back_by_attempt(store: Store) -> None:
    rows = [kept("t", attempt=n) for n in (2, 1)]
    for row in rows:
        await store.output.save_tree(row)
    await store.output.save_tree(kept("other"))
    assert list(await store.output.trees("t", ARTIFACTS)) == rows[::-1]
    assert list(await store.output.trees("t", CHECKPOINT)) == []
    newer = replace(rows[0], digest=B, files=0, size=0, left_out="")
    await store.output.save_tree(newer)
    assert list(await store.output.trees("t", ARTIFACTS)) == [rows[1], newer]


async def test_of_checkpoints_only_the_newest_stays(store: Store) -> None:
    for attempt in (1, 2):
        await store.output.save_tree(kept("t", CHECKPOINT, attempt))
    assert [row.attempt for row in await store.output.trees("t", CHECKPOINT)] == [2]
    await store.output.forget_trees("t", CHECKPOINT)
    assert not await store.output.trees("t", CHECKPOINT)


async def test_what_cannot_be_stored_in_a_message_is_replaced(store: Store) -> None:
    await store.output.save_tree(replace(kept("t"), left_out="a\0b\udcff"))
    (row,) = await store.output.trees("t", ARTIFACTS)
    assert row.left_out == "a\ufffdb\ufffd"


async def test_checkpoints_of_completed_tasks_and_strays_are_dropped(
    store: Store, term: int
) -> None:
    done, failed = (assigned(make_task()) for _ in range(2))
    await store.tasks.insert_tasks(term, [done, failed])
    for task in (done, failed):
        await store.output.save_tree(kept(task.id))
        await store.output.save_tree(kept(task.id, CHECKPOINT))
    await store.output.save_tree(kept("nobody"))
    await settled(store, term, done, failed)
    assert await store.output.drop_trees() == 2
    assert not await store.output.trees(done.id, CHECKPOINT)
    assert await store.output.trees(done.id, ARTIFACTS)
    assert await store.output.trees(failed.id, CHECKPOINT)


async def test_trees_go_with_their_task(store: Store, term: int) -> None:
    done, failed = (assigned(make_task()) for _ in range(2))
    await store.tasks.insert_tasks(term, [done, failed])
    await settled(store, term, done, failed)
    await store.output.save_tree(kept(failed.id))
    gone = await store.prune(later(10), Retention(1, 1e9, 1e9, 1e9))
    assert gone["kept_trees"] == 1
    assert not await store.output.trees(failed.id, ARTIFACTS)


async def test_digests_in_payloads_and_kept_trees_are_found(
    store: Store, term: int
) -> None:
    payload = f'{{"archive": "{B}", "no": "{"c" * 65}", "also": "{"d" * 64}"}}'
    await store.tasks.insert_tasks(term, [make_task(payload=payload), make_task()])
    await store.output.save_tree(kept("t"))
    assert await store.output.payload_digests() == {B, "d" * 64}
    assert await store.output.kept_digests() == {A}
