"""Clearing the databases while the cluster works."""

from __future__ import annotations

import asyncio

import pytest

from corral.store.base import TaskFilter
from tests.twins.store import MemoryStore
from tests.unit.api.world import World, fault, quiet, running, said


async def cleared(world: World) -> None:
    answer = await world.admin.post("/clear_databases")
    assert (answer.status_code, answer.content) == (200, b"null")
    await quiet()


async def rows(world: World) -> list[str]:
    page = await world.store.inner.tasks.list_tasks(TaskFilter(), 100)
    return [task.id for task in page.tasks]


async def test_waiting_running_ended_and_dead_tasks_are_gone(world: World) -> None:
    worker = await world.worker("echo", concurrency=2)
    dead = await world.submit.submit("echo")
    await worker.fail(worker.take_one())
    done = await world.submit.submit("echo")
    await worker.finish(worker.take_one(), {})
    runs = await world.submit.submit("echo")
    item = worker.take_one()
    await worker.begin(item)
    waits = await world.submit.submit("echo", depends_on=[runs])
    assert len(await rows(world)) == 4
    await cleared(world)
    assert await rows(world) == []
    for task_id in (dead, done, runs, waits):
        fault(await world.read.get(f"/tasks/{task_id}"), 404, "task_not_found")
    assert (await world.read.tell("/get_dlq_jobs"))["jobs"] == []
    assert world.manager.ctx.cluster.tasks == {}


async def test_a_worker_is_told_to_stop_and_then_takes_the_next_task(
    world: World,
) -> None:
    worker = await world.worker("echo")
    await world.submit.submit("echo")
    item = worker.take_one()
    await worker.begin(item)
    await cleared(world)
    assert worker.id in world.engine.rung
    beat = await worker.node.beat(worker.word(item))
    assert beat["drop"] == [[item["task_id"], item["attempt"]]]
    await worker.finish(item, {"late": True})
    assert await rows(world) == []
    again = await world.submit.submit("echo")
    await worker.finish(worker.take_one(), {})
    assert await world.read.status(again) == "completed"


async def test_whoever_waits_for_a_task_is_answered(world: World) -> None:
    await world.worker("other")
    await world.operate.tell("/job-types", {"name": "echo"})
    task_id = await world.submit.submit("echo")
    waiting = asyncio.create_task(world.read.get(f"/tasks/{task_id}", wait=30))
    await quiet()
    await cleared(world)
    assert (await asyncio.wait_for(waiting, 60)).status_code in (200, 404)


async def test_types_and_targets_go_and_what_workers_serve_stays_plain(
    world: World,
) -> None:
    worker = await world.worker("echo")
    await world.admin.tell("/apps", {"name": "app", "url": "http://127.0.0.1:9"})
    schema = {"type": "object"}
    await world.operate.tell("/job-types", {"name": "echo", "input_schema": schema})
    await world.operate.tell("/job-types", {"name": "call", "target": "app/run"})
    body = {"worker_name": "mine", "worker_class": "a:B", "job_type": "other"}
    said(await world.operate.post("/register_worker_type", body))
    await cleared(world)
    (kind,) = (await world.read.ask("/job-types"))["job_types"]
    assert (kind["name"], kind["input_schema"]) == ("echo", None)
    assert (await world.read.ask("/worker-types"))["worker_types"] == []
    told = await world.submit.tell("/submit_job", {"schema_name": "call"})
    assert told["status"] == "error"
    assert [a["name"] for a in (await world.read.ask("/apps"))["apps"]] == ["app"]
    assert (await world.read.ask("/workers"))["workers"][0]["worker_id"] == worker.id
    said(await world.admin.delete("/apps/app"))


async def test_history_says_who_cleared(world: World) -> None:
    await world.worker("echo")
    await world.submit.submit("echo")
    await cleared(world)
    event = (await world.read.ask("/events"))["events"][-1]
    assert event["event_type"] == "databases_cleared"
    actor = world.admin.headers["Authorization"].split("_")[1]
    assert (event["data"]["actor"], event["data"]["tasks"]) == (actor, 1)
    await world.manager.access.audit.flush()
    row = (await world.store.inner.access.audit(1))[0]
    assert (row.action, row.actor) == ("cluster.clear", actor)


async def test_a_task_of_a_type_that_goes_meanwhile_does_not_wait_for_ever(
    world: World,
) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    reached, go_on = world.store.hold("insert_tasks")
    submitting = asyncio.create_task(world.submit.post("/tasks", {"task_type": "echo"}))
    await reached.wait()
    clearing = asyncio.create_task(world.admin.post("/clear_databases"))
    await quiet()
    go_on.set()
    task_id = said(await submitting)["task_id"]
    said(await clearing)
    answer = await world.read.get(f"/tasks/{task_id}")
    assert answer.status_code == 404 or answer.json()["status"] == "cancelled"
    assert world.manager.ctx.cluster.tasks == {}


async def test_a_store_that_is_away_is_a_503_and_the_next_call_clears() -> None:
    async with running(inner=MemoryStore()) as world:
        await world.worker("echo")
        await world.submit.submit("echo")
        world.store.fails_after("clear", 0)
        fault(await world.admin.post("/clear_databases"), 503, "store_unavailable")
        world.store.is_down = False
        await cleared(world)
        assert await rows(world) == []


@pytest.mark.parametrize("who", ["operate", "submit", "read"])
async def test_only_an_administrator_clears(world: World, who: str) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    task_id = await world.submit.submit("echo")
    answer = await getattr(world, who).post("/clear_databases")
    fault(answer, 403, "forbidden")
    assert await world.read.status(task_id) == "queued"
