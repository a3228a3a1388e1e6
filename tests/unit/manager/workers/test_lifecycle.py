"""A worker starts anew under its id: what it runs ends or goes back uncharged."""

from __future__ import annotations

from typing import Any

import pytest

from tests.twins.engine import InlineDispatcher
from tests.twins.store import MemoryStore
from tests.unit.api.world import FakeWorker, StepClock, World, fault, running


async def restart(world: World, worker: FakeWorker) -> dict[str, Any]:
    return await world.operate.tell(f"/workers/{worker.id}/restart")


async def generation(worker: FakeWorker) -> int:
    path = f"/nodes/{worker.node.id}/desired"
    (row,) = (await worker.node.caller.ask(path))["workers"]
    assert row["worker_id"] == worker.id
    return int(row["generation"])


async def test_the_answer_has_message_worker_and_seconds(world: World) -> None:
    worker = await world.worker("echo")
    told = await restart(world, worker)
    assert told["worker_id"] == worker.id
    assert told["message"]
    assert isinstance(told["estimated_downtime"], float)


async def test_its_agent_is_told_once_for_each_restart(world: World) -> None:
    worker = await world.worker("echo")
    before = await generation(worker)
    version = (await worker.node.beat(worker.word()))["desired_version"]
    await restart(world, worker)
    assert await generation(worker) == before + 1
    beat = await worker.node.beat(worker.word())
    assert beat["desired_version"] > version
    assert await generation(worker) == before + 1


async def test_what_it_runs_may_finish_and_nothing_new_reaches_it(
    world: World,
) -> None:
    worker = await world.worker("echo")
    first = await world.submit.submit("echo")
    item = worker.take_one()
    await worker.begin(item)
    await restart(world, worker)
    second = await world.submit.submit("echo")
    assert worker.take() == []
    await worker.node.beat(worker.word(item))
    await worker.finish(item, {"done": True})
    assert worker.take() == []
    assert await world.read.status(first) == "completed"
    assert await world.read.status(second) == "queued"
    former = worker.incarnation
    await worker.register(pid=4001)
    assert worker.incarnation != former
    await worker.report(state="ready")
    await worker.finish(worker.take_one(), {})
    assert await world.read.status(second) == "completed"


async def test_what_it_cannot_finish_goes_back_uncharged(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit("echo")
    item = worker.take_one()
    await worker.begin(item)
    await restart(world, worker)
    await worker.node.beat(worker.word(state="starting", pid=None))
    task = await world.read.task(task_id)
    assert (task["status"], task["losses"], task["tries"]) == ("queued", 0, 0)
    assert [a["outcome"] for a in task["attempts"]] == ["returned"]


async def test_a_death_after_the_restart_counts_again(world: World) -> None:
    worker = await world.worker("echo")
    await restart(world, worker)
    await worker.register(pid=4001)
    await worker.report(state="ready")
    task_id = await world.submit.submit("echo")
    await worker.begin(worker.take_one())
    await worker.node.beat(worker.word(state="starting", pid=None))
    assert (await world.read.task(task_id))["losses"] == 1


async def test_a_stopped_workers_task_goes_back_uncharged(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit("echo")
    await worker.begin(worker.take_one())
    await world.operate.delete(f"/workers/{worker.id}")
    task = await world.read.task(task_id)
    assert (task["status"], task["losses"]) == ("queued", 0)


async def test_the_wish_outlives_the_manager() -> None:
    store, clock, engine = MemoryStore(), StepClock(), InlineDispatcher()
    async with running(inner=store, clock=clock, engine=engine) as world:
        worker = await world.worker("echo")
        await restart(world, worker)
        wanted = await generation(worker)
    async with running(inner=store, clock=clock, engine=engine) as world:
        link = world.manager.workers.get(worker.id)
        assert link.worker.generation == wanted


async def test_the_downtime_is_what_its_last_start_took(world: World) -> None:
    worker = await world.worker("echo")
    await worker.register(pid=4001)
    world.clock.step(12.5)
    await worker.report(state="ready")
    assert (await restart(world, worker))["estimated_downtime"] == 12.5


async def test_a_worker_nobody_knows_is_a_404(world: World) -> None:
    answer = await world.operate.post("/workers/w-none/restart")
    fault(answer, 404, "worker_not_found")


@pytest.mark.parametrize("who", ["submit", "read"])
async def test_only_an_operator_restarts(world: World, who: str) -> None:
    worker = await world.worker("echo")
    answer = await getattr(world, who).post(f"/workers/{worker.id}/restart")
    fault(answer, 403, "forbidden")
    assert await generation(worker) == 0
