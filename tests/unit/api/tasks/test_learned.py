"""What the manager learns of tasks, workers and models, as users see it."""

from __future__ import annotations

import pytest

from tests.twins.store import MemoryStore
from tests.unit.api.models.test_memory import (
    draw,
    drawer,
    gpu,
    held,
    models_of,
    word,
)
from tests.unit.api.nodes.test_gpus import card
from tests.unit.api.world import (
    FakeNode,
    FakeWorker,
    Json,
    World,
    declared,
    outcome,
    running,
    said,
)

TOOK_S = {"slow": 30.0, "fast": 10.0}


async def pair(world: World) -> FakeNode:
    """A slow worker and a fast one."""
    node = await world.node(*(declared(name) for name in TOOK_S))
    for name in TOOK_S:
        await node.workers[name].start()
    return node


async def run(worker: FakeWorker, took_s: float, **more: float) -> None:
    """End what it has: each task took so long."""
    ends = [outcome(item, duration_s=took_s, **more) for item in worker.take()]
    assert ends
    said(await worker.report(outcomes=ends))


async def show_speeds(world: World, node: FakeNode, rounds: int = 40) -> None:
    for _ in range(rounds):
        for _ in TOOK_S:
            await world.submit.submit()
        for name, took_s in TOOK_S.items():
            await run(node.workers[name], took_s)


async def speeds(world: World) -> dict[str, float]:
    rows = (await world.read.ask("/workers"))["workers"]
    return {row["name"]: row["performance_metrics"]["speed"] for row in rows}


@pytest.mark.spec("C22")
async def test_the_worker_that_was_faster_gets_the_next_task_also_after_a_restart() -> (
    None
):
    store = MemoryStore()
    async with running(inner=store) as world:
        node = await pair(world)
        assert await speeds(world) == {"slow": 1.0, "fast": 1.0}
        await show_speeds(world, node)
        learned = await speeds(world)
        assert learned["fast"] / learned["slow"] == pytest.approx(3.0, rel=0.3)
        task_id = await world.submit.submit()
        (item,) = node.workers["fast"].take()
        assert item["task_id"] == task_id
        told = await world.read.task(task_id)
        await run_one(node.workers["fast"], item)
    async with running(inner=store) as world:
        told_again = await again(world, node)
        assert await speeds(world) == learned
        assert told_again["worker_id"] == node.workers["fast"].id
        before, after = told["estimate"], told_again["estimate"]
        assert after["runs"] == before["runs"] + 1
        assert after["duration"] == pytest.approx(before["duration"], rel=0.05)


async def run_one(worker: FakeWorker, item: Json) -> None:
    said(await worker.report(outcomes=[outcome(item, duration_s=10.0)]))


async def again(world: World, node: FakeNode) -> Json:
    """The same node at a manager that began anew; the first task it is given."""
    node.world = world
    node.caller._http = world.http
    await node.register(*(declared(name) for name in TOOK_S))
    for name in TOOK_S:
        await node.workers[name].start()
    return await world.read.task(await world.submit.submit())


async def test_how_sure_an_estimate_is_is_told_with_it(world: World) -> None:
    worker = await world.worker()
    first = await world.submit.submit()
    assert (await world.read.task(first))["estimate"] is None
    for _ in range(20):
        await run(worker, 10.0)
        await world.submit.submit()
    await run(worker, 10.0)
    task_id = await world.submit.submit()
    told = (await world.read.task(task_id))["estimate"]
    assert told["duration"] == pytest.approx(10.0)
    assert told["low"] < 10.0 < told["high"]
    assert (told["runs"], told["memory_mb"], told["memory_runs"]) == (21, None, 0)
    explained = await world.read.ask(f"/tasks/{task_id}/explain")
    assert explained["estimate"] == told
    await run(worker, 10.0)
    assert (await world.read.task(task_id))["estimate"] is None


async def test_inputs_of_another_size_are_estimated_for_themselves(
    world: World,
) -> None:
    worker = await world.worker()
    for _ in range(20):
        for letters, took_s in ((4, 1.0), (4000, 60.0)):
            await world.submit.submit(parameters={"text": "x" * letters})
            await run(worker, took_s)
    small, large = [
        (await world.submit.tell("/tasks", {"task_type": "echo", "parameters": told}))
        for told in ({"text": "x" * 4}, {"text": "x" * 4000})
    ]
    assert small["estimated_duration"] < 10.0 < 40.0 < large["estimated_duration"]


async def test_the_memory_tasks_take_beside_their_model_is_learned(
    world: World,
) -> None:
    worker = await drawer(world)
    for took_mb in (500.0, 700.0, 600.0):
        await world.submit.submit("draw", model_name="m")
        await run(worker, 1.0, memory_mb=took_mb)
    task_id = await world.submit.submit("draw", model_name="m")
    told = (await world.read.task(task_id))["estimate"]
    assert told["memory_mb"] == pytest.approx(600.0, rel=0.01)
    assert told["memory_high_mb"] > 600.0
    assert told["memory_runs"] == 3


@pytest.mark.spec("C13", "C15", "D16")
async def test_a_worker_s_status_has_every_part_of_the_registry(world: World) -> None:
    worker = await drawer(world)
    await draw(world, worker, "m")
    await worker.report(models=word(1, held("m", 100.0)))
    used = [{**gpu(400.0), "utilization_percent": 73.0}]
    facts = {"gpus": ["GPU-1"]}
    await worker.node.beat(worker.word(facts=facts, memory_mb=64.0), gpus=used)
    rows = (await world.read.ask("/workers"))["workers"]
    (row,) = [row for row in rows if row["worker_id"] == worker.id]
    assert row["status"] == "online"
    assert row["node_id"] == worker.node.id
    assert row["loaded_models"] == ["m"]
    (shown,) = row["gpu_info"]
    assert (shown["model"], shown["memory_total"]) == ("NVIDIA H200", 1280.0)
    assert row["memory_usage"] == {
        "rss_mb": 64.0,
        "models_mb": 100.0,
        "gpu_used_mb": 400.0,
        "gpu_total_mb": 1280.0,
    }
    assert row["last_heartbeat"] is not None
    figures = row["performance_metrics"]
    assert {"tasks_completed", "average_duration_s", "error_rate"} <= figures.keys()
    assert (figures["speed"], figures["speed_runs"]) == (1.0, 0)


@pytest.mark.spec("C41")
async def test_the_use_of_its_cards_is_told_for_each_worker(world: World) -> None:
    node = await world.node({**declared("one"), "gpus": "2"}, declared("two"))
    one, two = [await worker.start() for worker in node.workers.values()]
    cards = [card(f"GPU-{n}", utilization_percent=use) for n, use in ((1, 90), (2, 30))]
    facts = {"gpus": ["GPU-1", "GPU-2"]}
    await node.beat(one.word(facts=facts), two.word(), gpus=cards)
    rows = (await world.read.ask("/workers"))["workers"]
    shown = {row["worker_id"]: row for row in rows}
    assert [c["utilization"] for c in shown[one.id]["gpu_info"]] == [90.0, 30.0]
    assert shown[one.id]["performance_metrics"]["gpu_utilization"] == 60.0
    assert "gpu_utilization" not in shown[two.id]["performance_metrics"]


@pytest.mark.spec("C42")
async def test_load_times_are_told_for_each_model_and_worker(world: World) -> None:
    one, two = await drawer(world), await drawer(world)
    await one.report(models=word(1, {**held("m"), "load_s": 2.0}))
    await two.report(models=word(1, {**held("m"), "load_s": 8.0}))
    await two.report(models=word(2, {**held("m", at=2.0), "load_s": 8.0}))
    quick, slow = (await models_of(world, one))["m"], (await models_of(world, two))["m"]
    assert (quick["load_time"], slow["load_time"]) == (2.0, 8.0)
    assert quick["estimated_load_time"] < slow["estimated_load_time"]
    assert (quick["loads"], slow["loads"]) == (1, 2)
    told = await world.read.ask(f"/workers/{two.id}")
    (model,) = told["loaded_models"]
    assert (model["name"], model["load_time"]) == ("m", 8.0)


@pytest.mark.spec("C42")
async def test_what_loads_took_is_summed_up_for_each_worker(world: World) -> None:
    worker = await drawer(world)
    for load_s in (2.5, 1.5):
        (item,) = (await draw(world, worker, "m"))["items"]
        said(await worker.report(outcomes=[outcome(item, load_s=load_s)]))
    figures = (await world.read.ask(f"/workers/{worker.id}"))["performance_metrics"]
    assert (figures["model_loads"], figures["model_load_s"]) == (2, 4.0)
