"""/tasks/{id}/explain: of tasks that wait, that run and that have ended."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import datetime

import pytest

from tests.unit.api.world import Json, World, fault, quiet, running


async def explained(world: World, task_id: str, **query: int) -> Json:
    return await world.read.ask(f"/tasks/{task_id}/explain", **query)


async def test_a_task_that_nobody_serves_says_what_to_start(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "render"})
    worker = await world.worker("echo")
    task_id = await world.submit.submit("render")
    told = await explained(world, task_id)
    assert told["status"] == "queued"
    assert told["headline"].startswith(f"Task {task_id} waits: no worker serves")
    assert told["reason"] == (await world.read.task(task_id))["waiting"]
    first = told["changes"][0]
    assert first["change"] == "worker"
    assert first["command"] == "corral worker launch CLASS --job-type render"
    (candidate,) = told["candidates"]
    assert candidate["worker_id"] == worker.id
    assert (candidate["verdict"], candidate["cost"]) == ("type", None)
    assert told["verdicts"] == {"type": 1}
    assert (told["placement"], told["attempts"]) == (None, [])


async def test_a_task_behind_another_says_when_and_after_which(world: World) -> None:
    worker = await world.worker("echo")
    await world.submit.submit()
    await worker.finish(worker.take_one())
    before = await world.submit.submit()
    accepted = await world.submit.tell("/tasks", {"task_type": "echo"})
    task_id = accepted["task_id"]
    told = await explained(world, task_id)
    assert told["reason"]["reason"] == "workers_busy"
    assert told["changes"][0]["change"] == "wait"
    assert told["changes"][0]["details"]["tasks"] == [before]
    assert (told["ahead"], told["line"]) == (0, 1)
    start = told["estimated_start"]
    low, at, high = (datetime.fromisoformat(start[k]) for k in ("low", "at", "high"))
    assert low <= at <= high
    assert told["estimated_duration"] == pytest.approx(0.5)
    assert accepted["estimated_start"] == start
    assert accepted["estimated_wait_time"] == pytest.approx(start["in_s"], abs=1e-3)
    assert accepted["estimated_duration"] == pytest.approx(0.5)
    task = await world.read.task(task_id)
    assert task["estimated_start"] == start
    assert task["estimated_duration"] == pytest.approx(0.5)


async def test_few_candidates_are_told_unless_all_are_asked_for(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "render"})
    for _ in range(3):
        await world.worker("echo")
    task_id = await world.submit.submit("render")
    told = await explained(world, task_id, limit=2)
    assert (len(told["candidates"]), told["candidates_total"]) == (2, 3)
    assert len((await explained(world, task_id, limit=0))["candidates"]) == 3


async def test_a_task_with_a_worker_says_why_it_is_there(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    await quiet()
    told = await explained(world, task_id)
    assert f"is on its way to worker {worker.id} of node" in told["headline"]
    assert told["reason"] is None
    placed = told["placement"]
    assert (placed["worker_id"], placed["together"]) == (worker.id, 1)
    assert placed["message"].endswith("was free")
    item = worker.take_one()
    await worker.begin(item)
    assert "runs on worker" in (await explained(world, task_id))["headline"]
    await worker.finish(item)
    ended = await explained(world, task_id)
    assert f"ended as completed on worker {worker.id}" in ended["headline"]
    assert ended["placement"] == placed


async def test_of_what_is_not_remembered_the_store_tells(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit(retries=1)
    await worker.fail(worker.take_one())
    await world.step(60.0, worker.node)
    await worker.finish(worker.take_one())
    async with running(inner=world.store.inner, clock=world.clock) as later:
        told = await explained(later, task_id)
    assert told["placement"] is None
    assert f"ended as completed on worker {worker.id}" in told["headline"]
    assert [a["outcome"] for a in told["attempts"]] == ["failed"]


async def test_a_task_that_was_too_late_says_so(world: World) -> None:
    worker = await world.worker("echo")
    await world.submit.submit()
    task_id = await world.submit.submit(deadline=5)
    await world.step(6.0, worker.node)
    told = await explained(world, task_id)
    assert told["status"] == "timed_out"
    assert told["reason"]["reason"] == "deadline_passed"
    assert told["headline"].startswith(f"Task {task_id} did not start: its deadline")
    assert told["changes"][0]["change"] == "deadline"
    await world.submit.tell(f"/tasks/{task_id}/requeue")
    again = await explained(world, task_id)
    assert again["reason"] is None or again["reason"]["reason"] != "deadline_passed"


async def test_a_task_waits_for_redis(world: World) -> None:
    await world.worker("echo")
    await world.submit.submit()
    world.manager.ctx.cluster.set_engine(False)
    task_id = await world.submit.submit()
    told = await explained(world, task_id)
    assert told["reason"]["reason"] == "engine_down"
    assert [c["change"] for c in told["changes"]] == ["engine"]
    world.manager.ctx.cluster.set_engine(True)


async def test_of_an_unknown_task_nothing_can_be_said(world: World) -> None:
    fault(await world.read.get("/tasks/nope/explain"), 404, "task_not_found")
    fault(await world.nobody.get("/tasks/x/explain"), 401, "unauthenticated")


@pytest.fixture
async def talkative(caplog: pytest.LogCaptureFixture) -> AsyncIterator[World]:
    caplog.set_level(logging.INFO, "corral.manager.tasks.dispatch")
    async with running() as made:
        yield made


@pytest.mark.spec("D18")
async def test_each_task_that_goes_to_a_worker_is_logged(
    talkative: World, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await talkative.worker("echo")
    first = await talkative.submit.submit()
    await worker.report(
        outcomes=[
            {
                "task_id": first,
                "attempt": 1,
                "kind": "completed",
                "result": None,
                "started_at": 0.0,
                "duration_s": 30.0,
            }
        ]
    )
    second = await talkative.submit.submit()
    await quiet()
    said = [r for r in caplog.records if r.getMessage() == "task_scheduled"]
    told = [(vars(r)["task_id"], vars(r)["worker_id"]) for r in said]
    assert told == [(first, worker.id), (second, worker.id)]
    assert vars(said[0])["estimated_duration"] is None
    assert vars(said[1])["estimated_duration"] == pytest.approx(30.0)
