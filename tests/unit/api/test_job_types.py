"""Queues of job types: their order, how many wait, emptying and forgetting them."""

from __future__ import annotations

import pytest

from tests.unit.api.world import World, fault, said


async def test_a_queue_is_counted_and_cleared_and_what_runs_goes_on(
    world: World,
) -> None:
    worker = await world.worker("echo")
    ids = [await world.submit.submit() for _ in range(4)]
    later = await world.submit.submit(run_after=500)
    assert (await world.read.ask("/job-types/echo"))["waiting"] == 4
    told = said(await world.operate.delete("/job-types/echo/queue"))
    assert told["cancelled"] == 4
    assert (await world.read.ask("/job-types/echo"))["waiting"] == 0
    for task_id in (*ids[1:], later):
        task = await world.read.task(task_id)
        assert (task["status"], task["error"]["kind"]) == ("cancelled", "cancelled")
    await worker.finish(worker.take_one(), 1)
    assert await world.read.status(ids[0]) == "completed"
    fault(await world.operate.delete("/job-types/nothing/queue"), 404, "not_found")


async def test_more_tasks_than_one_write_takes_are_cleared(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "many"})
    rows = [{"task_type": "many"}] * 2500
    await world.submit.tell("/tasks/batch", {"tasks": rows})
    told = said(await world.operate.delete("/job-types/many/queue"))
    assert told["cancelled"] == 2500
    page = await world.read.ask("/tasks", status="cancelled", limit=1)
    assert page["total"] == 2500


async def test_a_job_type_goes_when_nobody_needs_it(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "old"})
    task_id = await world.submit.submit("old")
    fault(await world.operate.delete("/job-types/old"), 409, "conflict")
    said(await world.submit.delete(f"/tasks/{task_id}"))
    said(await world.operate.delete("/job-types/old"))
    body = {"task_type": "old"}
    fault(await world.submit.post("/tasks", body), 422, "unknown_task_type")
    fault(await world.read.get("/job-types/old"), 404, "not_found")
    await world.worker("echo")
    fault(await world.operate.delete("/job-types/echo"), 409, "conflict")


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ("priority", [0, 2, 1, 3]),
        ("fifo", [0, 1, 2, 3]),
        ("stack", [0, 3, 2, 1]),
    ],
)
async def test_tasks_are_taken_in_the_order_of_their_type(
    world: World, order: str, wanted: list[int]
) -> None:
    worker = await world.worker("echo")
    await world.operate.tell("/job-types", {"name": "echo", "queue_order": order})
    priorities = (0, 0, 5, -1)
    ids = [await world.submit.submit(priority=p) for p in priorities]
    taken = []
    for _ in ids:
        item = worker.take_one()
        taken.append(ids.index(item["task_id"]))
        await worker.finish(item)
    assert taken == wanted


async def test_an_order_of_another_name_is_refused(world: World) -> None:
    body = {"name": "echo", "queue_order": "random"}
    error = fault(await world.operate.post("/job-types", body), 422, "invalid_field")
    assert error["details"]["field"] == "queue_order"
