"""Time: later starts, deadlines, retries with backoff, timeouts, dead letters."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.unit.api.world import World, outcome, quiet, said


async def test_a_task_does_not_start_before_its_time(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit(run_after=60)
    task = await world.read.task(task_id)
    assert task["waiting"]["reason"] == "not_before"
    assert task["waiting"]["details"] == {"starts_in_s": 60.0}
    await world.step(59, worker.node)
    assert worker.take() == []
    await world.step(1, worker.node)
    assert worker.take_one()["task_id"] == task_id


async def test_a_deadline_that_passes_in_the_queue_ends_the_task(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    task_id = await world.submit.submit(deadline=30)
    await world.step(29)
    assert await world.read.status(task_id) == "queued"
    await world.step(1)
    task = await world.read.task(task_id)
    assert task["status"] == "timed_out"
    assert task["error"]["kind"] == "deadline"
    assert task["dead_letter"] == "deadline"
    assert task["completed_at"] == "2026-01-01T00:00:30Z"


async def test_a_deadline_passes_while_redis_is_away_too(world: World) -> None:
    await world.worker("echo")
    world.engine.is_down = True
    await world.step(1)
    task_id = await world.submit.submit(deadline=5)
    await world.step(5)
    assert await world.read.status(task_id) == "timed_out"


async def test_a_deadline_limits_the_time_a_worker_gets(world: World) -> None:
    worker = await world.worker("echo", concurrency=2)
    await world.submit.submit(deadline=12, timeout=60)
    await world.submit.submit(deadline=120, timeout=60)
    assert [item["timeout_s"] for item in worker.take()] == [12.0, 60.0]


async def test_a_failed_task_is_tried_again_with_growing_pauses(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit(retries=3)
    pauses = []
    for attempt in (1, 2, 3):
        item = worker.take_one()
        assert item["attempt"] == attempt
        await worker.fail(item, f"broke {attempt}")
        task = await world.read.task(task_id)
        assert (task["status"], task["attempt"]) == ("queued", attempt + 1)
        assert task["waiting"]["reason"] == "not_before"
        due = datetime.fromisoformat(task["run_after"]) - world.clock.now()
        pauses.append(due.total_seconds())
        assert worker.take() == []
        await world.step(pauses[-1], worker.node)
    for pause, middle in zip(pauses, (1, 2, 4), strict=True):
        assert 0.8 * middle <= pause <= 1.2 * middle
    await worker.finish(worker.take_one(), "at last")
    task = await world.read.task(task_id)
    assert (task["status"], task["result"]) == ("completed", "at last")
    assert (task["attempt"], task["tries"]) == (4, 3)
    assert [a["outcome"] for a in task["attempts"]] == ["failed"] * 3


async def test_the_last_failure_leaves_a_dead_letter_with_all_attempts(
    world: World,
) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit(retries=1)
    for attempt in (1, 2):
        await worker.fail(worker.take_one(), f"broke {attempt}")
        await world.step(5, worker.node)
    task = await world.read.task(task_id)
    assert (task["status"], task["dead_letter"]) == ("failed", "failed")
    assert task["error"] == {
        "kind": "exception",
        "message": "broke 2",
        "traceback": "Traceback: x",
    }
    assert [a["attempt"] for a in task["attempts"]] == [1, 2]
    assert [a["error"]["message"] for a in task["attempts"]] == ["broke 1", "broke 2"]
    for attempt in task["attempts"]:
        assert attempt["worker_id"] == worker.id
        assert attempt["node_id"] == worker.node.id
        assert attempt["started_at"]
        assert attempt["finished_at"]
    listed = await world.read.ask("/tasks", dead=True)
    assert [t["task_id"] for t in listed["tasks"]] == [task_id]


async def test_a_final_failure_is_a_dead_letter_at_once_whatever_retries_are_left(
    world: World,
) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit(retries=3)
    error = {"kind": "bad_input", "message": "top_p: at most 1", "is_final": True}
    ended = outcome(worker.take_one(), kind="failed", error=error)
    said(await worker.report(outcomes=[ended]))
    task = await world.read.task(task_id)
    assert (task["status"], task["dead_letter"]) == ("failed", "failed")
    told = (task["error"]["kind"], task["error"]["message"])
    assert told == ("bad_input", "top_p: at most 1")
    assert (task["attempt"], task["tries"]) == (1, 1)


async def test_a_failure_that_does_not_say_whether_it_is_final_is_tried_again(
    world: World,
) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit(retries=1)
    error = {"kind": "bad_input", "message": "no"}
    ended = outcome(worker.take_one(), kind="failed", error=error)
    said(await worker.report(outcomes=[ended]))
    assert await world.read.status(task_id) == "queued"


async def test_a_timeout_told_by_the_worker_ends_the_task_as_timed_out(
    world: World,
) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit(timeout=2)
    item = worker.take_one()
    assert item["timeout_s"] == 2.0
    error = {"kind": "timeout", "message": "over 2 s"}
    ended = outcome(item, kind="timed_out", error=error)
    said(await worker.report(outcomes=[ended]))
    task = await world.read.task(task_id)
    assert (task["status"], task["dead_letter"]) == ("timed_out", "timed_out")
    assert task["error"]["message"] == "over 2 s"


async def test_a_timed_out_task_with_retries_left_is_tried_again(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit(retries=1)
    ended = outcome(worker.take_one(), kind="timed_out")
    said(await worker.report(outcomes=[ended]))
    assert await world.read.status(task_id) == "queued"
    await world.step(5, worker.node)
    assert worker.take_one()["attempt"] == 2


@pytest.mark.parametrize("ended_as", ["completed", "failed", "cancelled"])
async def test_a_requeued_task_runs_again_as_a_new_run(
    world: World, ended_as: str
) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit(retries=0)
    item = worker.take_one()
    if ended_as == "completed":
        await worker.finish(item, "first")
    elif ended_as == "failed":
        await worker.fail(item)
    else:
        await world.submit.delete(f"/tasks/{task_id}")
        await quiet()
    task = said(await world.submit.post(f"/tasks/{task_id}/requeue"))
    assert (task["run"], task["attempt"]) == (2, 2)
    assert (task["tries"], task["dead_letter"], task["result"]) == (0, None, None)
    await quiet()
    again = worker.take_one()
    assert (again["task_id"], again["attempt"]) == (task_id, 2)
    await worker.finish(again, "second")
    task = await world.read.task(task_id)
    assert (task["status"], task["result"]) == ("completed", "second")
    (old,) = task["attempts"]
    assert (old["attempt"], old["run"], old["outcome"]) == (1, 1, ended_as)


async def test_a_higher_priority_overtakes_what_waits(world: World) -> None:
    worker = await world.worker("echo")
    await world.submit.submit()
    item = worker.take_one()
    low = await world.submit.submit(priority="low")
    normal = await world.submit.submit()
    urgent = await world.submit.submit(priority="critical")
    order = []
    for _ in range(3):
        await worker.finish(item)
        item = worker.take_one()
        order.append(item["task_id"])
    assert order == [urgent, normal, low]
