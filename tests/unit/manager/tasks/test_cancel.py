"""Cancel, and why a task waits."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.api.world import World, declared, fault, outcome, quiet, said


async def test_a_queued_task_is_cancelled_and_never_starts(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    task_id = await world.submit.submit()
    answer = await world.submit.delete(f"/tasks/{task_id}")
    assert answer.json() == {
        "message": "the task is cancelled",
        "task_id": task_id,
        "status": "cancelled",
    }
    worker = await world.worker("echo")
    assert worker.take() == []
    task = await world.read.task(task_id)
    assert (task["status"], task["error"]["kind"]) == ("cancelled", "cancelled")
    assert world.engine.rung == []


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_task_with_a_worker_is_dropped_and_the_bell_is_rung(
    world: World, is_running: bool
) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    item = worker.take_one()
    if is_running:
        await worker.begin(item)
    said(await world.submit.post(f"/tasks/{task_id}/cancel"))
    assert await world.read.status(task_id) == "cancelled"
    assert world.engine.rung == [worker.id]
    assert said(await worker.report())["drop"] == [[task_id, 1]]
    answer = await worker.node.beat(worker.word(item))
    assert answer["drop"] == [[task_id, 1]], "repeated until it is let go"
    answer = await worker.node.beat(worker.word())
    assert answer["drop"] == []
    await worker.finish(item, "too late")
    assert await world.read.status(task_id) == "cancelled"


async def test_a_cancelled_task_frees_its_worker_for_the_next(world: World) -> None:
    worker = await world.worker("echo")
    one = await world.submit.submit()
    worker.take_one()
    two = await world.submit.submit()
    await world.submit.delete(f"/tasks/{one}")
    await quiet()
    assert worker.take_one()["task_id"] == two


async def test_a_task_is_cancelled_even_when_the_bell_cannot_be_rung(
    world: World,
) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    worker.take_one()
    world.engine.is_down = True
    said(await world.submit.delete(f"/tasks/{task_id}"))
    assert await world.read.status(task_id) == "cancelled"


async def test_a_task_waiting_for_its_retry_can_be_cancelled(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit(retries=5)
    await worker.fail(worker.take_one())
    said(await world.submit.delete(f"/tasks/{task_id}"))
    await world.step(60, worker.node)
    assert worker.take() == []


async def test_cancel_and_result_in_the_same_moment_leave_one_end(
    world: World,
) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    item = worker.take_one()
    reached, release = world.store.hold("settle_tasks")
    finish = asyncio.create_task(worker.finish(item, "won"))
    await reached.wait()
    cancel = asyncio.create_task(world.submit.delete(f"/tasks/{task_id}"))
    await quiet()
    release.set()
    await finish
    fault(await cancel, 409, "conflict")
    assert await world.read.status(task_id) == "completed"


async def test_a_task_can_be_cancelled_while_it_is_being_stored(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    reached, release = world.store.hold("insert_tasks")
    submit = asyncio.create_task(world.submit.submit(task_id="mine"))
    await reached.wait()
    cancel = asyncio.create_task(world.submit.delete("/tasks/mine"))
    await quiet(2000)
    release.set()
    await submit
    answer = await cancel
    assert answer.status_code in (200, 404, 409, 503), answer.text
    if answer.status_code == 200:
        assert await world.read.status("mine") == "cancelled"


async def test_a_cancel_the_store_does_not_agree_with_ends_with_an_answer(
    world: World,
) -> None:
    """Memory and store apart must not turn a cancel into an endless loop."""
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    world.store.loses_answer("settle_tasks")
    ended = outcome(worker.take_one(), kind="returned")
    fault(await worker.report(outcomes=[ended]), 503, "store_unavailable")
    async with asyncio.timeout(60):
        fault(await world.submit.delete(f"/tasks/{task_id}"), 503, "store_unavailable")
    await world.step(1, worker.node)
    said(await world.submit.delete(f"/tasks/{task_id}"))


# why it waits ----------------------------------------------------------------


async def test_a_task_without_a_worker_says_so(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    task_id = await world.submit.submit()
    waiting = (await world.read.task(task_id))["waiting"]
    assert waiting["reason"] == "no_worker"
    assert "no worker serves 'echo'" in waiting["message"]


async def test_a_task_whose_worker_cannot_start_says_why(world: World) -> None:
    node = await world.node(declared("one", "echo"))
    worker = node.workers["one"]
    await worker.register()
    error = "cannot import 'mine': No module named 'mine'"
    said(await worker.report(state="error", error=error))
    told = await world.read.ask(f"/workers/{worker.id}")
    assert (told["status"], told["error"]) == ("error", error)
    task_id = await world.submit.submit()
    waiting = (await world.read.task(task_id))["waiting"]
    assert waiting["reason"] == "worker_error"
    assert error in waiting["message"]
    said(await worker.report(state="ready"))
    assert worker.take_one()["task_id"] == task_id


async def test_a_worker_that_dies_before_it_registers_is_told_of_by_its_agent(
    world: World,
) -> None:
    node = await world.node(declared("one", "echo"))
    worker = node.workers["one"]
    word = worker.word(state="error", pid=None, error="it died 5 times", restarts=5)
    await node.beat({**word, "incarnation": None})
    task_id = await world.submit.submit()
    waiting = (await world.read.task(task_id))["waiting"]
    assert "it died 5 times" in waiting["message"]
    told = await world.read.ask(f"/workers/{worker.id}")
    assert (told["status"], told["restarts"]) == ("error", 5)


async def test_a_task_behind_others_says_how_many(world: World) -> None:
    worker = await world.worker("echo")
    for _ in range(3):
        await world.submit.submit()
    task_id = await world.submit.submit()
    waiting = (await world.read.task(task_id))["waiting"]
    assert waiting["reason"] == "workers_busy"
    assert waiting["details"] == {"workers": [worker.id], "ahead": 2}


async def test_a_draining_cluster_starts_nothing_new_and_says_so(world: World) -> None:
    worker = await world.worker("echo")
    await world.submit.submit()
    item = worker.take_one()
    assert await world.admin.tell("/cluster/drain") == {"running": 1}
    task_id = await world.submit.submit()
    await worker.finish(item)
    assert worker.take() == []
    assert (await world.read.task(task_id))["waiting"]["reason"] == "draining"
    await world.admin.tell("/cluster/drain?resume=true")
    await quiet()
    assert worker.take_one()["task_id"] == task_id


async def test_a_task_that_runs_or_ended_waits_for_nothing(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    item = worker.take_one()
    assert (await world.read.task(task_id))["waiting"] is None
    await worker.finish(item)
    assert (await world.read.task(task_id))["waiting"] is None
