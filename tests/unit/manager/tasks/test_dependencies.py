"""Tasks that wait for other tasks, read their outputs, and fall with them."""

from __future__ import annotations

import pytest

from corral.manager.app import Manager
from tests.unit.api.world import World, fault, quiet


async def test_a_task_waits_for_those_it_depends_on_and_gets_their_outputs(
    world: World,
) -> None:
    worker = await world.worker("echo", concurrency=5)
    one, two = await world.submit.submit(), await world.submit.submit()
    last = await world.submit.submit(depends_on=[one, two])
    first, second = worker.take()
    task = await world.read.task(last)
    assert task["waiting"]["reason"] == "dependencies"
    assert task["waiting"]["details"] == {"depends_on": sorted([one, two])}
    await worker.finish(first, {"n": 1})
    assert worker.take() == []
    await worker.finish(second, [2])
    item = worker.take_one()
    assert item["task_id"] == last
    assert item["inputs"] == {one: {"n": 1}, two: [2]}


async def test_a_task_that_depends_on_completed_ones_starts_at_once(
    world: World,
) -> None:
    worker = await world.worker("echo")
    one = await world.submit.submit()
    await worker.finish(worker.take_one(), "out")
    await world.submit.submit(depends_on=[one])
    assert worker.take_one()["inputs"] == {one: "out"}


async def test_a_failed_dependency_fails_the_whole_chain_with_a_reason(
    world: World,
) -> None:
    worker = await world.worker("echo")
    one = await world.submit.submit()
    two = await world.submit.submit(depends_on=[one], retries=5)
    three = await world.submit.submit(depends_on=[two])
    await worker.fail(worker.take_one(), "it broke")
    for task_id, blamed in ((two, one), (three, two)):
        task = await world.read.task(task_id)
        assert task["status"] == "failed"
        assert task["error"]["kind"] == "dependency_failed"
        assert blamed in task["error"]["message"]
        assert task["dead_letter"] == "dependency_failed"
    assert worker.take() == []


async def test_a_long_chain_falls_to_its_end(world: World) -> None:
    worker = await world.worker("echo")
    chain = [
        {
            "task_type": "echo",
            "parameters": {"message": "hi"},
            "task_id": f"t{number}",
            "depends_on": [f"t{number - 1}"] if number else [],
        }
        for number in range(1500)
    ]
    await world.submit.post("/tasks/batch", {"tasks": chain})
    await worker.fail(worker.take_one(), "it broke")
    last = await world.read.task("t1499")
    assert last["error"]["kind"] == "dependency_failed"
    assert not world.manager.ctx.cluster.tasks


@pytest.mark.parametrize("how", ["failed", "cancelled"])
async def test_a_task_submitted_after_its_dependency_fell_falls_too(
    world: World, how: str
) -> None:
    worker = await world.worker("echo")
    one = await world.submit.submit()
    if how == "failed":
        await worker.fail(worker.take_one())
    else:
        await world.submit.delete(f"/tasks/{one}")
    two = await world.submit.submit(depends_on=[one])
    task = await world.read.task(two)
    assert (task["status"], task["error"]["kind"]) == ("failed", "dependency_failed")
    assert one in task["error"]["message"]


async def test_a_cancelled_dependency_fails_what_waits_for_it(world: World) -> None:
    await world.worker("echo")
    one = await world.submit.submit(run_after=3600)
    two = await world.submit.submit(depends_on=[one])
    await world.submit.delete(f"/tasks/{one}")
    assert await world.read.status(two) == "failed"


async def test_an_expired_dependency_fails_what_waits_for_it(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    one = await world.submit.submit(deadline=10)
    two = await world.submit.submit(depends_on=[one])
    await world.step(11)
    assert await world.read.status(one) == "timed_out"
    assert await world.read.status(two) == "failed"


async def test_a_retried_dependency_is_still_waited_for(world: World) -> None:
    worker = await world.worker("echo")
    one = await world.submit.submit(retries=1)
    two = await world.submit.submit(depends_on=[one])
    await worker.fail(worker.take_one())
    assert await world.read.status(two) == "queued"
    await world.step(5, worker.node)
    await worker.finish(worker.take_one(), "second")
    assert worker.take_one()["inputs"] == {one: "second"}


async def test_a_requeued_task_waits_for_its_dependency_again(world: World) -> None:
    worker = await world.worker("echo")
    one = await world.submit.submit()
    two = await world.submit.submit(depends_on=[one])
    await worker.fail(worker.take_one())
    answer = await world.submit.post(f"/tasks/{two}/requeue")
    fault(answer, 409, "conflict")
    await world.submit.post(f"/tasks/{one}/requeue")
    await world.submit.post(f"/tasks/{two}/requeue")
    await quiet()
    item = worker.take_one()
    assert item["task_id"] == one
    assert (await world.read.task(two))["waiting"]["reason"] == "dependencies"
    await worker.finish(item, "now")
    assert worker.take_one()["inputs"] == {one: "now"}


async def test_a_wide_fan_out_falls_in_one_write(world: World) -> None:
    worker = await world.worker("echo")
    one = await world.submit.submit()
    rows = [{"task_type": "echo", "depends_on": [one]} for _ in range(100)]
    await world.submit.tell("/tasks/batch", {"tasks": rows})
    world.store.calls.clear()
    await worker.fail(worker.take_one())
    writes = [rows for name, rows in world.store.calls if name == "settle_tasks"]
    assert writes == [1, 100]
    assert (await world.read.ask("/tasks", status="failed"))["total"] == 101


async def test_a_chain_that_falls_while_the_store_is_away_falls_later(
    world: World,
) -> None:
    worker = await world.worker("echo")
    one = await world.submit.submit()
    two = await world.submit.submit(depends_on=[one])
    three = await world.submit.submit(depends_on=[two])
    item = worker.take_one()
    world.store.fails_after("settle_tasks", 1)
    error = {"kind": "exception", "message": "it broke"}
    ended = {"task_id": one, "attempt": 1, "kind": "failed", "error": error}
    await worker.report(outcomes=[ended])
    world.store.is_down = False
    assert item["task_id"] == one
    await world.step(1, worker.node)
    assert await world.read.status(one) == "failed"
    assert await world.read.status(two) == "failed"
    assert await world.read.status(three) == "failed"
    assert _live(world.manager) == 0


def _live(manager: Manager) -> int:
    return len(manager.ctx.cluster.tasks)
