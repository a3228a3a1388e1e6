"""The way of an attempt through the store: placed, started, settled, again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from corral.core.tasks.outcome import OutcomeKind
from corral.core.tasks.task import Attempt, State, Task, TaskError
from corral.errors import NotLeader
from corral.store.base import Store
from tests.contract.conftest import (
    NOW,
    Insert,
    assigned,
    later,
    make_task,
    place,
    settlement,
)

FAILED: dict[str, Any] = {
    "state": State.FAILED,
    "outcome": OutcomeKind.FAILED,
    "tries": 1,
    "error": TaskError("ValueError", "no", "Traceback..."),
    "dead_letter": "failed",
}


async def read(store: Store, task_id: str) -> Task:
    task = await store.tasks.get_task(task_id)
    assert task is not None
    return task


async def test_placing_gives_a_queued_task_to_a_worker(
    store: Store, term: int, insert: Insert
) -> None:
    (task,) = await insert(make_task("one", payload='{"x": "\\u0000"}'))
    placed = await store.tasks.place_tasks(term, [place(task)], NOW)
    assert placed == {"one": '{"x": "\\u0000"}'}
    assert await read(store, "one") == assigned(task)


async def test_placing_leaves_tasks_that_moved_on(
    store: Store, term: int, insert: Insert
) -> None:
    queued, taken = await insert(make_task(), assigned(make_task(), "w9"))
    stale = replace(place(queued), attempt=2)
    unknown = replace(place(queued), task_id="nobody")
    assert not await store.tasks.place_tasks(term, [stale, unknown, place(taken)], NOW)
    assert await read(store, queued.id) == queued
    assert await read(store, taken.id) == taken


async def test_two_placements_of_one_task_take_effect_once(
    store: Store, term: int, insert: Insert
) -> None:
    (task,) = await insert(make_task())
    one, two = await asyncio.gather(
        store.tasks.place_tasks(term, [place(task, "w1")], NOW),
        store.tasks.place_tasks(term, [place(task, "w2")], NOW),
    )
    assert len(one) + len(two) == 1


async def test_starting_moves_only_assigned_tasks_of_that_attempt(
    store: Store, term: int, insert: Insert
) -> None:
    ready, queued, stale = await insert(
        assigned(make_task()), make_task(), assigned(make_task())
    )
    changed = await store.tasks.start_tasks(
        term,
        [(ready.id, 1, later(1)), (queued.id, 1, later(1)), (stale.id, 2, later(1))],
    )
    assert changed == {ready.id}
    running = await read(store, ready.id)
    assert (running.state, running.started_at) == (State.RUNNING, later(1))
    assert await read(store, stale.id) == stale


async def test_a_completed_attempt_ends_its_task(
    store: Store, term: int, insert: Insert
) -> None:
    (task,) = await insert(assigned(make_task()))
    assert await store.tasks.settle_tasks(term, [settlement(task.id)]) == {task.id}
    assert await read(store, task.id) == replace(
        task,
        state=State.COMPLETED,
        started_at=later(1),
        finished_at=later(2),
        result='{"ok": true}',
    )
    assert await store.tasks.attempts(task.id) == []


async def test_a_start_already_written_outlives_a_report_without_one(
    store: Store, term: int, insert: Insert
) -> None:
    (task,) = await insert(assigned(make_task()))
    await store.tasks.start_tasks(term, [(task.id, 1, later(0.5))])
    await store.tasks.settle_tasks(term, [settlement(task.id, started_at=None)])
    assert (await read(store, task.id)).started_at == later(0.5)


async def test_a_failed_attempt_leaves_its_history(
    store: Store, term: int, insert: Insert
) -> None:
    (task,) = await insert(assigned(make_task()))
    assert await store.tasks.settle_tasks(term, [settlement(task.id, **FAILED)])
    failed = await read(store, task.id)
    assert (failed.state, failed.tries) == (State.FAILED, 1)
    assert (failed.error, failed.dead_letter) == (FAILED["error"], "failed")
    assert await store.tasks.attempts(task.id) == [
        Attempt(
            task.id, 1, 1, "failed", "w1", "n1", later(1), later(2), FAILED["error"]
        )
    ]


async def test_a_settlement_to_queued_is_the_next_attempt_of_nobody(
    store: Store, term: int, insert: Insert
) -> None:
    (task,) = await insert(assigned(make_task()))
    again = settlement(
        task.id,
        state=State.QUEUED,
        outcome=OutcomeKind.LOST,
        losses=1,
        run_after=later(30),
        error=TaskError("lost", "its worker died"),
    )
    assert await store.tasks.settle_tasks(term, [again]) == {task.id}
    queued = await read(store, task.id)
    assert (queued.state, queued.attempt, queued.losses) == (State.QUEUED, 2, 1)
    assert queued.spec.run_after == later(30)
    assert (queued.worker_id, queued.incarnation, queued.node_id) == (None,) * 3
    assert (queued.assigned_at, queued.started_at, queued.finished_at) == (None,) * 3
    (attempt,) = await store.tasks.attempts(task.id)
    assert (attempt.attempt, attempt.outcome) == (1, "lost")
    assert (attempt.worker_id, attempt.node_id) == ("w1", "n1")
    assert await store.tasks.place_tasks(term, [place(queued)], NOW)


async def test_every_attempt_that_did_not_complete_is_kept_in_order(
    store: Store, term: int, insert: Insert
) -> None:
    (task,) = await insert(assigned(make_task()))
    for attempt in (1, 2, 3):
        again = settlement(
            task.id, attempt, state=State.QUEUED, outcome=OutcomeKind.RETURNED
        )
        assert await store.tasks.settle_tasks(term, [again])
    await store.tasks.settle_tasks(term, [settlement(task.id, 4)])
    kept = await store.tasks.attempts(task.id)
    assert [(a.attempt, a.outcome) for a in kept] == [
        (n, "returned") for n in (1, 2, 3)
    ]


async def test_a_report_of_an_old_attempt_changes_nothing(
    store: Store, term: int, insert: Insert
) -> None:
    (task,) = await insert(assigned(make_task()))
    again = settlement(task.id, state=State.QUEUED, outcome=OutcomeKind.LOST)
    await store.tasks.settle_tasks(term, [again])
    before = await read(store, task.id)
    assert await store.tasks.settle_tasks(term, [settlement(task.id, 1)]) == set()
    assert await read(store, task.id) == before


async def test_a_repeated_report_changes_nothing(
    store: Store, term: int, insert: Insert
) -> None:
    (task,) = await insert(assigned(make_task()))
    await store.tasks.settle_tasks(term, [settlement(task.id)])
    other = settlement(task.id, result='"late"')
    assert await store.tasks.settle_tasks(term, [other]) == set()
    assert await store.tasks.settle_tasks(term, [settlement("nobody")]) == set()
    assert (await read(store, task.id)).result == '{"ok": true}'


async def test_of_many_settlements_of_one_attempt_exactly_one_applies(
    store: Store, term: int, insert: Insert
) -> None:
    (task,) = await insert(assigned(make_task()))
    rivals = [settlement(task.id, result=str(n)) for n in range(8)]
    answers = await asyncio.gather(
        *(store.tasks.settle_tasks(term, [rival]) for rival in rivals[2:]),
        store.tasks.settle_tasks(term, rivals[:2]),
    )
    assert sum(len(answer) for answer in answers) == 1
    settled = [
        e for e in await store.events.events() if e.event_type == "tasks_settled"
    ]
    assert [e.task_ids for e in settled] == [(task.id,)]


async def test_a_result_that_cannot_be_stored_fails_its_task_alone(
    store: Store, term: int, insert: Insert
) -> None:
    tasks = await insert(*(assigned(make_task()) for _ in range(20)))
    batch = [settlement(task.id) for task in tasks]
    batch[7] = settlement(tasks[7].id, result='"\x00"')
    batch[8] = settlement(tasks[8].id, result='"\ud800"')
    assert await store.tasks.settle_tasks(term, batch) == {task.id for task in tasks}
    states = [(await read(store, task.id)).state for task in tasks]
    assert states == [State.COMPLETED] * 7 + [State.FAILED] * 2 + [State.COMPLETED] * 11
    failed = await read(store, tasks[7].id)
    assert failed.error is not None
    assert failed.error.kind == "unstorable_result"
    assert "could not be stored" in failed.error.message
    assert (failed.dead_letter, failed.result) == ("failed", None)


async def test_error_texts_lose_only_what_cannot_be_stored(
    store: Store, term: int, insert: Insert
) -> None:
    (task,) = await insert(assigned(make_task()))
    error = TaskError("Bad", "a\x00b", "line\ud800\nnext")
    await store.tasks.settle_tasks(
        term, [settlement(task.id, **{**FAILED, "error": error})]
    )
    cleaned = TaskError("Bad", "a\ufffdb", "line\ufffd\nnext")
    assert (await read(store, task.id)).error == cleaned


async def test_a_deposed_leader_moves_nothing(
    store: Store, term: int, insert: Insert
) -> None:
    queued, taken, done = await insert(
        make_task(), assigned(make_task()), assigned(make_task())
    )
    await store.tasks.settle_tasks(term, [settlement(done.id)])
    events = await store.events.events()
    await store.take_lead("manager-2", NOW)
    for call in (
        store.tasks.place_tasks(term, [place(queued)], NOW),
        store.tasks.start_tasks(term, [(taken.id, 1, NOW)]),
        store.tasks.settle_tasks(term, [settlement(taken.id)]),
        store.tasks.requeue_task(term, done.id, NOW),
    ):
        with pytest.raises(NotLeader):
            await call
    assert await read(store, queued.id) == queued
    assert await read(store, taken.id) == taken
    assert (await read(store, done.id)).state is State.COMPLETED
    assert await store.events.events() == events


async def test_requeue_starts_a_new_run_of_the_same_task(
    store: Store, term: int, insert: Insert
) -> None:
    task = assigned(make_task(deadline=later(5), run_after=later(1), retries=1))
    (task,) = await insert(task)
    await store.tasks.settle_tasks(term, [settlement(task.id, **FAILED)])
    again = await store.tasks.requeue_task(term, task.id, later(100))
    assert again is not None
    assert again == await read(store, task.id)
    assert (again.state, again.attempt, again.run) == (State.QUEUED, 2, 2)
    assert (again.tries, again.losses, again.error, again.dead_letter) == (
        0,
        0,
        None,
        None,
    )
    assert (again.worker_id, again.finished_at, again.result) == (None, None, None)
    assert (again.spec.run_after, again.spec.deadline) == (None, None)
    assert (again.spec.payload, again.seq) == (task.spec.payload, task.seq)


async def test_requeue_of_a_completed_task_keeps_the_attempt_that_completed(
    store: Store, term: int, insert: Insert
) -> None:
    (task,) = await insert(assigned(make_task(deadline=later(500))))
    await store.tasks.settle_tasks(term, [settlement(task.id)])
    again = await store.tasks.requeue_task(term, task.id, later(100))
    assert again is not None
    assert again.spec.deadline == later(500)
    (attempt,) = await store.tasks.attempts(task.id)
    assert (attempt.run, attempt.attempt, attempt.outcome) == (1, 1, "completed")
    assert (attempt.worker_id, attempt.finished_at) == ("w1", later(2))


async def test_only_a_terminal_task_can_be_requeued(
    store: Store, term: int, insert: Insert
) -> None:
    (task,) = await insert(make_task())
    assert await store.tasks.requeue_task(term, task.id, NOW) is None
    assert await store.tasks.requeue_task(term, "nobody", NOW) is None
    assert await store.tasks.requeue_task(term, "\ud800", NOW) is None
    assert await read(store, task.id) == task
