"""Queues of job types: their order, how many wait, emptying and forgetting them."""

from __future__ import annotations

import pytest

from tests.twins.store import MemoryStore
from tests.unit.api.world import World, fault, outcome, quiet, running, said


async def test_a_queue_is_counted_and_cleared_and_what_runs_goes_on(
    world: World,
) -> None:
    worker = await world.worker("echo")
    ids = [await world.submit.submit() for _ in range(4)]
    later = await world.submit.submit(run_after=500)
    told = await world.read.ask("/job-types/echo")
    assert (told["waiting"], told["running"]) == (4, 1)
    told = said(await world.operate.delete("/job-types/echo/queue"))
    assert told["cancelled"] == 4
    assert (await world.read.ask("/job-types/echo"))["waiting"] == 0
    for task_id in (*ids[1:], later):
        task = await world.read.task(task_id)
        assert (task["status"], task["error"]["kind"]) == ("cancelled", "cancelled")
    await worker.finish(worker.take_one(), 1)
    assert await world.read.status(ids[0]) == "completed"
    (row,) = (await world.read.ask("/job-types"))["job_types"]
    assert (row["waiting"], row["running"]) == (0, 0)
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


@pytest.mark.spec("C24")
async def test_tasks_of_a_type_with_a_batch_limit_go_to_a_worker_together(
    world: World,
) -> None:
    worker = await world.worker("echo")
    told = await world.operate.tell("/job-types", {"name": "echo", "batch_limit": 4})
    assert told["batch_limit"] == 4
    await world.operate.tell("/job-types/echo/pause")
    ids = [await world.submit.submit() for _ in range(6)]
    assert (await world.operate.tell("/job-types/echo/resume"))["batch_limit"] == 4
    await quiet()
    (order,) = worker.orders()
    assert [item["task_id"] for item in order["items"]] == ids[:4]
    # Half a second for each, as a batch of two seconds is told.
    ended = [outcome(item) for item in order["items"]]
    told = said(await worker.report(outcomes=ended, wants_order=True))
    rest = worker.read(told["order"])["items"]
    assert [item["task_id"] for item in rest] == ids[4:]
    said(await worker.report(outcomes=[outcome(item) for item in rest]))
    assert [await world.read.status(i) for i in ids] == ["completed"] * 6


async def test_a_batch_limit_holds_after_a_restart_of_the_manager() -> None:
    store = MemoryStore()
    async with running(inner=store) as world:
        await world.operate.tell("/job-types", {"name": "echo", "batch_limit": 3})
        await world.operate.tell("/job-types/echo/pause")
        for _ in range(5):
            await world.submit.submit()
    async with running(inner=store) as world:
        worker = await world.worker("echo")
        await world.operate.tell("/job-types/echo/resume")
        await quiet()
        (order,) = worker.orders()
        assert len(order["items"]) == 3


async def test_a_batch_limit_is_changed_and_taken_back(world: World) -> None:
    schema = {"type": "object"}
    await world.operate.tell("/job-types", {"name": "echo", "input_schema": schema})
    path = "/job-types/echo"
    told = said(await world.operate.send("PATCH", path, json={"batch_limit": 10_000}))
    assert (told["batch_limit"], told["input_schema"]) == (10_000, schema)
    assert (await world.read.ask("/job-types"))["job_types"] == [told]
    told = said(await world.operate.send("PATCH", path, json={"batch_limit": None}))
    assert told["batch_limit"] is None
    gone = await world.operate.send("PATCH", "/job-types/no", json={"batch_limit": 2})
    fault(gone, 404, "not_found")


@pytest.mark.parametrize("limit", [0, -1, 10_001, 10**30])
async def test_a_batch_limit_out_of_bounds_is_refused(world: World, limit: int) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    body = {"batch_limit": limit}
    for answer in (
        await world.operate.post("/job-types", {"name": "echo", **body}),
        await world.operate.send("PATCH", "/job-types/echo", json=body),
    ):
        error = fault(answer, 422, "invalid_field")
        assert "batch_limit" in error["message"]


async def test_a_batch_limit_does_not_send_an_app_more_calls_than_it_takes(
    world: World,
) -> None:
    app = {"name": "far", "url": "http://127.0.0.1:9", "concurrency": 1}
    await world.admin.tell("/apps", app)
    kind = {"name": "call", "target": "far/x", "batch_limit": 5}
    assert (await world.operate.tell("/job-types", kind))["batch_limit"] == 5
    assert world.manager.ctx.cluster.job_types["call"].gathered is None
