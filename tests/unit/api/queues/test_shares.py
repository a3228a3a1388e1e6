"""/shares and paused job types: who may set them, and what they do to waiting tasks."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from corral.core.access.share import ShareUse
from corral.manager.config import ManagerConfig
from corral.scheduler.scheduler import Policy
from tests.twins.store import MemoryStore
from tests.unit.api.world import (
    SECRET,
    Caller,
    Json,
    World,
    declared,
    fault,
    quiet,
    running,
    said,
)

TEAM = {"team": "vision"}


async def put(who: Caller, name: str = "team=vision", **limits: Any) -> httpx.Response:
    return await who.send("PUT", "/shares", json={"name": name, **limits})


async def why(world: World, task_id: str) -> tuple[str, str]:
    waiting = (await world.read.task(task_id))["waiting"]
    return waiting["reason"], waiting["message"]


async def test_a_quota_holds_tasks_back_until_there_is_room(world: World) -> None:
    worker = await world.worker("echo", concurrency=4)
    told = said(await put(world.admin, max_running=1, weight=2.0))
    assert told == {
        "name": "team=vision",
        "weight": 2.0,
        "max_running": 1,
        "gpu_seconds_per_day": None,
        "running": 0,
        "waiting": 0,
        "gpu_seconds_today": 0.0,
    }
    first = await world.submit.submit(labels=TEAM)
    second = await world.submit.submit(labels=TEAM)
    other = await world.submit.submit()
    items = {item["task_id"]: item for item in worker.take()}
    assert set(items) == {first, other}
    assert await why(world, second) == (
        "quota",
        "share team=vision runs 1 of at most 1 task(s) at once",
    )
    (row,) = (await world.read.ask("/shares"))["shares"]
    assert (row["running"], row["waiting"]) == (1, 1)
    await worker.finish(items[first])
    await quiet()
    assert worker.take_one()["task_id"] == second


async def test_a_share_set_later_counts_what_runs_already(world: World) -> None:
    worker = await world.worker("echo", concurrency=2)
    first = await world.submit.submit(labels=TEAM)
    item = worker.take_one()
    said(await put(world.admin, "team=*", max_running=1))
    second = await world.submit.submit(labels=TEAM)
    assert (await why(world, second))[0] == "quota"
    (row,) = (await world.read.ask("/shares"))["shares"]
    assert (row["name"], row["running"], row["waiting"]) == ("team=*", 1, 1)
    said(await world.admin.delete("/shares/team=*"))
    await quiet()
    assert worker.take_one()["task_id"] == second
    await worker.finish(item)
    assert await world.read.status(first) == "completed"
    fault(await world.admin.delete("/shares/team=*"), 404, "not_found")


async def test_a_cancelled_or_failed_task_gives_its_place_back(world: World) -> None:
    worker = await world.worker("echo", concurrency=4)
    said(await put(world.admin, max_running=1))
    ids = [await world.submit.submit(labels=TEAM) for _ in range(4)]
    worker.take_one()
    said(await world.submit.delete(f"/tasks/{ids[0]}"))
    await quiet()
    item = worker.take_one()
    assert item["task_id"] == ids[1]
    await worker.fail(item)
    await quiet()
    item = worker.take_one()
    assert item["task_id"] == ids[2]
    await worker.report(outcomes=[{**_ended(item), "kind": "returned"}])
    await quiet()
    assert worker.take_one()["task_id"] == ids[2], "it comes again, in its own place"


def _ended(item: Json) -> Json:
    return {"task_id": item["task_id"], "attempt": item["attempt"]}


async def test_shares_and_what_runs_are_there_again_after_a_restart() -> None:
    kept = MemoryStore()
    async with running(inner=kept) as world:
        said(await put(world.admin, max_running=1, gpu_seconds_per_day=1000.0))
        worker = await world.worker("echo", concurrency=2)
        await world.submit.submit(labels=TEAM)
        worker.take_one()
        day = int(world.clock.now().timestamp() // 86_400)
        await kept.queues.save_share_uses([ShareUse("team=vision", day, 12.5)])
    async with running(inner=kept) as world:
        (row,) = (await world.read.ask("/shares"))["shares"]
        assert (row["running"], row["gpu_seconds_today"]) == (1, 12.5)
        task_id = await world.submit.submit(labels=TEAM)
        assert (await why(world, task_id))[0] == "quota"


@pytest.mark.spec("C66")
async def test_gpu_seconds_are_counted_by_the_cards_of_the_worker(
    world: World,
) -> None:
    said(await put(world.admin, gpu_seconds_per_day=60.0))
    row = {**declared("one"), "gpus": "2"}
    node = await world.node(row)
    worker = await node.workers["one"].start()
    first = await world.submit.submit(labels=TEAM)
    item = worker.take_one()
    await worker.begin(item)
    second = await world.submit.submit(labels=TEAM)
    world.clock.step(40)
    at = world.clock.now().timestamp() - 40
    ended = {**_ended(item), "kind": "completed", "result": 1, "started_at": at}
    said(await worker.report(outcomes=[{**ended, "duration_s": 40.0}]))
    await quiet()
    assert await world.read.status(first) == "completed"
    (share,) = (await world.read.ask("/shares"))["shares"]
    assert share["gpu_seconds_today"] == pytest.approx(80.0)
    assert (await why(world, second))[0] == "quota"
    await world.manager.queues.shares.step()
    day = int(world.clock.now().timestamp() // 86_400)
    (use,) = await world.store.queues.share_uses()
    assert (use.name, use.day) == ("team=vision", day)
    assert use.gpu_seconds == pytest.approx(80.0)
    world.clock.step(86_400 - world.clock.now().timestamp() % 86_400)
    world.manager.tasks.dispatch.kick()
    await quiet()
    assert worker.take_one()["task_id"] == second


async def test_only_an_admin_sets_and_removes_shares(world: World) -> None:
    for who in (world.operate, world.submit, world.read):
        fault(await put(who, weight=1.0), 403, "forbidden")
        fault(await who.delete("/shares/team=vision"), 403, "forbidden")


@pytest.mark.parametrize(
    ("name", "limits", "field"),
    [
        ("vision", {"weight": 1.0}, "name"),
        ("team=", {"weight": 1.0}, "name"),
        ("team=two words", {"weight": 1.0}, "name"),
        ("team=a", {}, "weight"),
        ("team=a", {"weight": 0.0}, "weight"),
        ("team=a", {"max_running": -1}, "max_running"),
        ("team=a", {"gpu_seconds_per_day": -1.0}, "gpu_seconds_per_day"),
    ],
)
async def test_a_share_that_means_nothing_is_refused(
    world: World, name: str, limits: Json, field: str
) -> None:
    error = fault(await put(world.admin, name, **limits), 422, "invalid_field")
    assert error["details"]["field"] == field


# groups ----------------------------------------------------------------------
async def test_of_a_group_no_more_run_at_once_than_its_limit(world: World) -> None:
    worker = await world.worker("echo", concurrency=4)
    task = {"task_type": "echo", "group": "a-1", "group_limit": 2}
    told = await world.submit.tell("/tasks/batch", {"tasks": [task] * 5})
    await quiet()
    items = worker.take()
    assert len(items) == 2
    shown = await world.read.task(told["task_ids"][4])
    assert (shown["group"], shown["group_limit"]) == ("a-1", 2)
    assert shown["labels"] == {}
    assert shown["waiting"]["reason"] == "quota"
    done = []
    while items:
        done.append(items[0]["task_id"])
        await worker.finish(items.pop(0))
        await quiet()
        items += worker.take()
        assert len(items) <= 2
    assert sorted(done) == sorted(told["task_ids"])


@pytest.mark.parametrize(
    "more", [{"group": "a"}, {"group_limit": 3}, {"group": "a b", "group_limit": 1}]
)
async def test_a_group_has_a_name_and_a_limit(world: World, more: Json) -> None:
    await world.worker("echo")
    fault(
        await world.submit.post("/tasks", {"task_type": "echo", **more}),
        422,
        "invalid_field",
    )


# pauses ----------------------------------------------------------------------
async def test_tasks_of_a_paused_type_wait_even_over_a_restart() -> None:
    kept = MemoryStore()
    async with running(inner=kept) as world:
        worker = await world.worker("echo")
        told = await world.operate.tell("/job-types/echo/pause")
        assert told["paused"] is True
        task_id = await world.submit.submit()
        assert (await why(world, task_id))[0] == "type_paused"
        assert worker.take() == []
        # Registered again, by a worker or by hand, it is still paused.
        await world.operate.tell("/job-types", {"name": "echo"})
        assert (await world.read.ask("/job-types/echo"))["paused"] is True
    async with running(inner=kept) as world:
        worker = await world.worker("echo")
        assert worker.take() == []
        told = await world.operate.tell("/job-types/echo/resume")
        assert told["paused"] is False
        await quiet()
        assert worker.take_one()["task_id"] == task_id
        fault(await world.operate.post("/job-types/none/pause"), 404, "not_found")


# preemption ------------------------------------------------------------------
async def test_a_preemptible_task_makes_room_and_begins_again_uncharged() -> None:
    config = ManagerConfig(SECRET, policy=Policy(preempts=True))
    async with running(config) as world:
        worker = await world.worker("echo")
        first = await world.submit.submit(preemptible=True)
        item = worker.take_one()
        await worker.begin(item)
        await world.step(60, worker.node)
        urgent = await world.submit.submit(priority="critical")
        await quiet()
        assert worker.take_one()["task_id"] == urgent
        told = await worker.node.beat(worker.word(item))
        assert [item["task_id"], item["attempt"]] in told["drop"]
        shown = await world.read.task(first)
        assert (shown["status"], shown["attempt"], shown["tries"]) == ("queued", 2, 0)
        assert shown["preemptible"] is True
        (attempt,) = shown["attempts"]
        assert (attempt["outcome"], attempt["error"]["kind"]) == (
            "returned",
            "preempted",
        )
