"""Jobs for one worker, and stopping workers by whatever is known of them."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.unit.api.world import (
    FakeWorker,
    Json,
    World,
    declared,
    fault,
    quiet,
    running,
    said,
)


def job(name: str = "unknown", **more: Any) -> Json:
    return {"schema_name": name, "payload": {"x": 1}, **more}


async def pair(world: World) -> tuple[FakeWorker, FakeWorker]:
    node = await world.node()
    await node.register(declared("one"), declared("two"))
    one, two = node.workers["one"], node.workers["two"]
    return await one.start(), await two.start()


async def test_a_job_for_one_worker_needs_no_job_type_and_goes_nowhere_else(
    world: World,
) -> None:
    one, two = await pair(world)
    for worker in (two, one, two):
        body = {"worker_id": worker.id, "job": job()}
        run = asyncio.create_task(world.admin.tell("/run_on_worker", body))
        await quiet()
        item = worker.take_one()
        await worker.finish(item, {"y": 2})
        told = await run
        assert (told["status"], told["output"]) == ("completed", {"y": 2})
        assert (await world.admin.task(told["job_id"]))["worker_id"] == worker.id
    # It made no type: plain jobs of that name are still unknown.
    assert (await world.admin.tell("/submit_job", job()))["status"] == "error"


async def test_a_lost_attempt_goes_back_to_the_same_worker(world: World) -> None:
    one, two = await pair(world)
    body = {"worker_id": one.id, "job": job(id="mine")}
    run = asyncio.create_task(world.admin.tell("/run_on_worker", body))
    await quiet()
    one.take_one()
    await one.register(pid=5000)
    said(await one.report(state="ready"))
    await quiet()
    assert two.take() == []
    item = one.take_one()
    assert (item["task_id"], item["attempt"]) == ("mine", 2)
    await one.finish(item)
    assert (await run)["status"] == "completed"


async def test_the_stored_row_says_which_worker_a_job_is_for(
    world: World,
) -> None:
    one, _ = await pair(world)
    task = {"id": "kept", **job()}
    run = asyncio.create_task(
        world.admin.post("/run_on_worker", {"worker_id": one.id, "job": task})
    )
    await quiet()
    one.take_one()
    stored = await world.store.inner.tasks.get_task("kept")
    assert stored is not None
    assert stored.spec.options.only_on == one.id
    waiting = world.manager.ctx.cluster.waiting(stored)
    assert (waiting.worker_id, waiting.job_type) == (one.id, "unknown")
    run.cancel()


async def test_stopping_the_one_worker_fails_what_only_it_may_run(
    world: World,
) -> None:
    one, _ = await pair(world)
    jobs = [{"worker_id": one.id, "job": job(id=name)} for name in ("a", "b")]
    runs = [asyncio.create_task(world.admin.tell("/run_on_worker", j)) for j in jobs]
    await quiet()
    await world.admin.tell("/shutdown_worker_by_id", {"worker_id": one.id})
    for told in await asyncio.gather(*runs):
        assert told["status"] == "failed"
        assert told["output"]["kind"] == "worker_gone"
    body = {"worker_id": one.id, "job": job()}
    fault(await world.admin.post("/run_on_worker", body), 404, "worker_not_found")


async def test_a_node_asks_for_jobs_of_its_own_workers_alone(world: World) -> None:
    one, _ = await pair(world)
    stranger = await world.node()
    await stranger.register()
    body = {"worker_id": one.id, "job": job(id="ours")}
    fault(await stranger.caller.post("/run_on_worker", body), 403, "forbidden")
    run = asyncio.create_task(world.submit.tell("/run_on_worker", body))
    await quiet()
    await one.finish(one.take_one(), 7)
    assert (await run)["output"] == 7
    asked = {"worker_id": one.id, "job_id": "ours"}
    fault(await stranger.caller.post("/run_on_worker", asked), 403, "forbidden")
    assert (await one.node.caller.tell("/run_on_worker", asked))["output"] == 7


async def test_a_job_of_another_worker_is_neither_run_again_nor_waited_for(
    world: World,
) -> None:
    one, two = await pair(world)
    body = {"worker_id": one.id, "job": job(id="ours")}
    run = asyncio.create_task(world.admin.tell("/run_on_worker", body))
    await quiet()
    await one.finish(one.take_one())
    await run
    stolen = {"worker_id": two.id, "job": job(id="ours")}
    fault(await world.admin.post("/run_on_worker", stolen), 409, "conflict")
    asked = {"worker_id": two.id, "job_id": "ours"}
    fault(await world.admin.post("/run_on_worker", asked), 404, "task_not_found")
    asked = {"worker_id": one.id, "job_id": "ours"}
    assert (await world.admin.tell("/run_on_worker", asked))["status"] == "completed"


async def test_a_worker_is_connected_when_it_comes_if_it_was_awaited() -> None:
    async with running() as world:
        url = "http://localhost:9999"
        body = {"job_type": "late", "worker_url": f"{url}/"}
        await world.admin.post("/register_job_to_worker", body)
        node = await world.node()
        row = {**declared("by-url"), "job_types": [], "url": url}
        await node.register(row)
        worker = node.workers["by-url"]
        assert (await worker.register())["job_types"] == ["late"]
        # An agent that starts anew declares nothing, and the worker keeps its types.
        await node.register(row)
        assert (await worker.register())["job_types"] == ["late"]


async def test_a_node_asked_to_stop_is_told_so_and_starts_afresh(world: World) -> None:
    one, _ = await pair(world)
    node = one.node
    wanted = await node.caller.ask(f"/nodes/{node.id}/desired")
    assert (len(wanted["workers"]), wanted["leave"]) == (2, False)
    await world.admin.tell("/shutdown_node", {"node_url": node.id})
    wanted = await node.caller.ask(f"/nodes/{node.id}/desired")
    assert (wanted["workers"], wanted["leave"]) == ([], True)
    await node.register()
    wanted = await node.caller.ask(f"/nodes/{node.id}/desired")
    assert wanted["leave"] is False
