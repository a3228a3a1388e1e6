"""Equal tasks under way at once: one runs, and the others are given its result."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.twins.store import MemoryStore
from tests.unit.api.world import FakeWorker, Json, World, quiet, running, said

pytestmark = pytest.mark.spec("C56")
SUM: Json = {"numbers": [1, 2]}


async def keeping(world: World, concurrency: int = 4) -> FakeWorker:
    worker = await world.worker("add", concurrency=concurrency)
    body = {"cache_ttl_s": 3600}
    said(await world.operate.send("PATCH", "/job-types/add", json=body))
    return worker


async def ask(world: World, **more: Any) -> str:
    task_id = await world.submit.submit("add", **{"parameters": SUM, **more})
    await quiet()
    return task_id


async def test_who_asks_what_another_is_at_is_given_its_result(world: World) -> None:
    worker = await keeping(world)
    first = await ask(world)
    item = worker.take_one()
    second = await ask(world)
    after = await world.submit.submit("add", depends_on=[second])
    assert worker.take() == [], "there is room, and nothing to do"
    task = await world.read.task(second)
    assert (task["status"], task["waiting"]["reason"]) == ("queued", "same_question")
    told = await world.read.ask(f"/tasks/{second}/explain")
    assert first in told["headline"]
    await worker.finish(item, 3)
    await quiet()
    task = await world.read.task(second)
    assert (task["status"], task["result"], task["worker_id"]) == ("completed", 3, None)
    assert (task["cached_from"], task["labels"]) == (first, {})
    told = await world.read.ask(f"/tasks/{second}/explain")
    assert f"answered with the kept result of {first}" in told["headline"]
    assert worker.take_one()["task_id"] == after
    figures = (await world.read.ask("/job-types/add"))["cache"]
    assert (figures["hits"], figures["misses"], figures["entries"]) == (1, 1, 1)
    third = await world.submit.tell("/tasks", {"task_type": "add", "parameters": SUM})
    assert third["cached_from"] == first


async def test_of_many_equal_ones_of_a_request_one_runs(world: World) -> None:
    worker = await keeping(world)
    rows = [{"task_type": "add", "parameters": SUM} for _ in range(50)]
    told = await world.submit.tell("/tasks/batch", {"tasks": rows})
    await quiet()
    item = worker.take_one()
    await worker.finish(item, 3)
    await quiet()
    tasks = [await world.read.task(task_id) for task_id in told["task_ids"]]
    assert {(task["status"], task["result"]) for task in tasks} == {("completed", 3)}
    sources = [task["cached_from"] for task in tasks]
    assert sorted(map(str, sources)) == sorted(["None", *[item["task_id"]] * 49])
    assert worker.take() == []


@pytest.mark.parametrize("end", ["fails", "is cancelled", "is returned"])
async def test_when_the_first_does_not_complete_the_others_run(
    world: World, end: str
) -> None:
    worker = await keeping(world)
    first = await ask(world)
    item = worker.take_one()
    others = {await ask(world), await ask(world)}
    if end == "fails":
        await worker.fail(item)
    elif end == "is cancelled":
        said(await world.submit.delete(f"/tasks/{first}"))
    else:
        ended = {"task_id": first, "attempt": 1, "kind": "returned"}
        said(await worker.report(outcomes=[ended]))
    await quiet()
    given = {item["task_id"]: item for item in worker.take()}
    assert others <= given.keys()
    for task_id in others:
        await worker.finish(given[task_id], 4)
        task = await world.read.task(task_id)
        assert (task["result"], task["cached_from"]) == (4, None)


@pytest.mark.parametrize(
    "more",
    [{"priority": "critical"}, {"no_cache": True}, {"deadline": 600}],
    ids=["more urgent", "wants to run", "may be too late"],
)
async def test_who_must_not_wait_runs(world: World, more: Json) -> None:
    worker = await keeping(world)
    await ask(world)
    worker.take_one()
    own = await ask(world, **more)
    assert worker.take_one()["task_id"] == own


async def test_nobody_waits_for_one_that_is_held_up_by_what_does_not_hold_him(
    world: World,
) -> None:
    worker = await keeping(world)
    await ask(world, node_labels={"zone": "nowhere"})
    assert worker.take() == []
    free = await ask(world)
    assert worker.take_one()["task_id"] == free
    assert (await world.read.task(await ask(world)))["waiting"]["reason"] == (
        "same_question"
    )


async def test_one_that_waits_can_be_cancelled_and_the_first_goes_on(
    world: World,
) -> None:
    worker = await keeping(world)
    first = await ask(world)
    item = worker.take_one()
    second = await ask(world)
    said(await world.submit.delete(f"/tasks/{second}"))
    await worker.finish(item, 3)
    await quiet()
    assert await world.read.status(second) == "cancelled"
    assert (await world.read.task(first))["result"] == 3


async def test_an_outage_while_results_are_given_loses_no_task(world: World) -> None:
    worker = await keeping(world)
    await ask(world)
    item = worker.take_one()
    second = await ask(world)
    world.store.fails_after("settle_tasks", 1)
    await worker.finish(item, 3)
    await quiet()
    world.store.is_down = False
    await world.step(1, worker.node)
    (again,) = worker.take()
    assert again["task_id"] == second
    await worker.finish(again, 3)
    assert (await world.read.task(second))["result"] == 3


async def test_after_a_restart_each_runs_for_itself() -> None:
    kept = MemoryStore()
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(running(inner=kept))
        said(await world.operate.post("/job-types", {"name": "add"}))
        body = {"cache_ttl_s": 3600}
        said(await world.operate.send("PATCH", "/job-types/add", json=body))
        tasks = {await ask(world), await ask(world)}
    async with running(inner=kept) as world:
        worker = await world.worker("add", concurrency=4)
        await quiet()
        assert {item["task_id"] for item in worker.take()} == tasks
