"""Models as the manager sees them: what workers say, what operators ask."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from corral.core.tasks.job_type import MODEL_TASK
from corral.manager.models.memory import ModelConfig
from tests.unit.api.nodes.test_gpus import card
from tests.unit.api.world import (
    CONFIG,
    FakeNode,
    FakeWorker,
    Json,
    World,
    declared,
    fault,
    quiet,
    running,
)

GPU = "GPU-1"


def held(
    name: str, size_mb: float | None = 100.0, at: float = 1.0, **more: Any
) -> Json:
    return {"name": name, "size_mb": size_mb, "load_s": 2.0, "loaded_at": at, **more}


def word(number: int, *models: Json, **sizes: float) -> Json:
    return {"number": number, "held": list(models), "sizes": sizes}


def gpu(used_mb: float = 0.0, total_mb: float = 1280.0) -> Json:
    offered = max(0.0, 0.9 * total_mb - used_mb)
    memory = {"memory_total_mb": total_mb, "memory_used_mb": used_mb}
    return card(GPU, **memory, memory_offered_mb=offered)


async def beat(worker: FakeWorker, used_mb: float | None = None, **facts: Any) -> None:
    told = worker.word(facts={"gpus": [GPU], **facts})
    more = {} if used_mb is None else {"gpus": [gpu(used_mb)]}
    await worker.node.beat(told, **more)


async def drawer(world: World) -> FakeWorker:
    """A worker with a card of its own, of which models may take 1024 MB."""
    node: FakeNode = await world.node({**declared("one", "draw"), "gpus": "1"})
    worker = await node.workers["one"].start()
    await beat(worker, 0.0)
    return worker


async def draw(world: World, worker: FakeWorker, model: str) -> Json:
    """Submit a task with a model; the order that it comes in."""
    await world.submit.submit("draw", model_name=model)
    (order,) = worker.orders()
    return order


async def shown(world: World, worker: FakeWorker) -> list[str]:
    rows = (await world.read.ask("/workers"))["workers"]
    (row,) = [row for row in rows if row["worker_id"] == worker.id]
    names: list[str] = row["loaded_models"]
    return names


async def models_of(world: World, worker: FakeWorker) -> dict[str, Json]:
    rows = (await world.read.ask("/models/assignments"))["assignments"]
    found = [row for row in rows if row["worker_id"] == worker.id]
    return {model["name"]: model for row in found for model in row["models"]}


async def test_what_a_worker_holds_is_shown_with_size_and_times(world: World) -> None:
    worker = await drawer(world)
    await worker.report(models=word(1, held("b"), held("a", None, copies=2)))
    assert await shown(world, worker) == ["a", "b"]
    told = await world.read.ask(f"/workers/{worker.id}")
    a, b = told["loaded_models"]
    assert (a["name"], a["memory_usage"]) == ("a", None)
    assert (b["memory_usage"], b["load_time"]) == (100.0, 2.0)
    assert b["last_used"] is not None


async def test_an_older_word_changes_nothing(world: World) -> None:
    worker = await drawer(world)
    await worker.report(models=word(2, held("b")))
    await worker.report(models=word(1, held("a")))
    await beat(worker, models=word(1, held("a")))
    assert await shown(world, worker) == ["b"]
    await beat(worker, models=word(3, held("b"), held("c")))
    assert await shown(world, worker) == ["b", "c"]


async def test_a_worker_that_starts_anew_holds_nothing(world: World) -> None:
    worker = await drawer(world)
    await worker.report(models=word(7, held("a")))
    former = worker.incarnation
    await worker.register(pid=4001)
    assert await shown(world, worker) == []
    late = await worker.report(models=word(8, held("a")), incarnation=former)
    assert late.status_code == 409
    await worker.report(state="ready", models=word(1, held("b")))
    assert await shown(world, worker) == ["b"]


async def test_an_order_says_what_to_drop_for_its_model(world: World) -> None:
    worker = await drawer(world)
    await worker.report(models=word(1, a=600.0, b=600.0))
    order = await draw(world, worker, "a")
    assert "unload" not in order
    await worker.finish(order["items"][0], models=word(2, held("a", 600.0), b=600.0))
    assert (await draw(world, worker, "b"))["unload"] == ["a"]


async def test_durations_are_learned_without_loads(world: World) -> None:
    worker = await drawer(world)
    item = (await draw(world, worker, "a"))["items"][0]
    ended = {"task_id": item["task_id"], "attempt": 1, "kind": "completed"}
    await worker.report(
        outcomes=[{**ended, "result": 1, "duration_s": 0.5, "load_s": 30.0}]
    )
    told = (await world.read.ask(f"/workers/{worker.id}"))["performance_metrics"]
    assert told["average_duration_s"] == 0.5
    assert (told["model_loads"], told["model_load_s"]) == (1, 30.0)


async def test_a_model_too_large_for_every_card_is_refused_with_the_largest(
    world: World,
) -> None:
    worker = await drawer(world)
    await worker.report(models=word(1, huge=1200.0))
    body = {"task_type": "draw", "model_name": "huge"}
    said = fault(await world.submit.post("/tasks", body), 422, "invalid_field")
    assert "model huge takes 1200 MB" in said["message"]
    assert f"of {worker.node.id}) has 1024 MB for models" in said["message"]
    assert worker.orders() == []


async def test_a_model_that_demand_may_start_a_worker_for_waits(world: World) -> None:
    worker = await drawer(world)
    await worker.report(models=word(1, huge=1200.0))
    kind = {"worker_name": "big", "worker_class": "big:Drawer", "job_type": "draw"}
    await world.operate.tell("/register_worker_type", {**kind, "max_workers": 2})
    task_id = await world.submit.submit("draw", model_name="huge")
    assert await world.read.status(task_id) == "queued"


@pytest.mark.spec("C27", "C28")
async def test_memory_that_others_take_is_given_up_by_idle_models(
    world: World,
) -> None:
    worker = await drawer(world)
    await worker.report(models=word(1, held("a", 400.0), held("b", 400.0)))
    await beat(worker, 800.0)
    await world.manager.models.memory.step()
    assert worker.take() == []
    await beat(worker, 1200.0)
    await world.manager.models.memory.step()
    (order,) = worker.orders()
    (gone,) = order["unload"]
    (item,) = order["items"]
    assert item["job_type"] == MODEL_TASK
    await world.manager.models.memory.step()
    assert worker.take() == []
    (kept,) = {"a", "b"} - {gone}
    await worker.finish(item, models=word(2, held(kept, 400.0)))
    await beat(worker, 800.0)
    await world.manager.models.memory.step()
    assert worker.take() == []


async def test_a_reading_older_than_a_swap_is_not_taken_for_others_use(
    world: World,
) -> None:
    worker = await drawer(world)
    await worker.report(models=word(1, held("a", 600.0)))
    await beat(worker, 600.0)
    await worker.report(models=word(2))
    await beat(worker, 600.0)
    rows = (await world.read.ask("/models/assignments"))["assignments"]
    assert rows == []
    assert world.manager.ctx.cluster.workers[worker.id].shelf.room_mb == 1024.0


async def test_a_model_is_loaded_when_somebody_asks_and_only_once(
    world: World,
) -> None:
    worker = await drawer(world)
    await worker.report(models=word(1, a=600.0))
    ask = {"model_name": "a", "worker_ids": [worker.id], "priority": "high"}
    told = await world.operate.tell("/models/assign", ask)
    assert told["model_name"] == "a"
    assert told["assignment_id"]
    (row,) = told["assignments"]
    assert (row["worker_id"], row["status"]) == (worker.id, "loading")
    await world.operate.tell("/models/assign", ask)
    item = worker.take_one()
    assert (item["job_type"], item["model"]) == (MODEL_TASK, "a")
    assert (await models_of(world, worker))["a"]["status"] == "loading"
    await worker.finish(item, models=word(2, held("a", 600.0)))
    loaded = (await models_of(world, worker))["a"]
    assert (loaded["status"], loaded["memory_usage"]) == ("loaded", 600.0)
    assert loaded["pinned"] is False
    (row,) = (await world.operate.tell("/models/assign", ask))["assignments"]
    assert (row["status"], row["estimated_time"]) == ("loaded", 0.0)
    assert worker.take() == []


async def test_a_model_is_dropped_when_somebody_asks(world: World) -> None:
    worker = await drawer(world)
    await worker.report(models=word(1, held("a"), held("b")))
    told = await world.operate.tell("/models/unload", {"model_name": "a"})
    assert told["affected_workers"] == [worker.id]
    (order,) = worker.orders()
    assert order["unload"] == ["a"]
    await worker.finish(order["items"][0], models=word(2, held("b")))
    assert await shown(world, worker) == ["b"]
    told = await world.operate.tell("/models/unload", {"model_name": "a"})
    assert told["affected_workers"] == []


async def test_a_load_that_nobody_wants_any_more_is_called_back(world: World) -> None:
    worker = await drawer(world)
    busy = (await draw(world, worker, "x"))["items"][0]
    ask = {"model_name": "a", "worker_ids": [worker.id]}
    await world.operate.tell("/models/assign", ask)
    assert (await models_of(world, worker))["a"]["status"] == "queued"
    await world.operate.tell("/models/unload", ask)
    await worker.finish(busy)
    assert worker.take() == []
    assert "a" not in await models_of(world, worker)


async def test_a_pinned_model_is_kept_loaded_until_it_is_unpinned(
    world: World,
) -> None:
    worker = await drawer(world)
    pin = {"model_name": "a", "worker_ids": [worker.id], "pin": True}
    await world.operate.tell("/models/assign", pin)
    await worker.finish(worker.take_one(), models=word(1, held("a", 600.0), b=600.0))
    assert (await models_of(world, worker))["a"]["pinned"] is True
    task_id = await world.submit.submit("draw", model_name="b")
    assert worker.orders() == []
    fault(
        await world.operate.post("/models/unload", {"model_name": "a"}),
        409,
        "conflict",
    )
    too_much = {"model_name": "b", "worker_ids": [worker.id]}
    fault(await world.operate.post("/models/assign", too_much), 409, "conflict")
    await world.operate.tell("/models/assign", {**pin, "pin": False, "preload": False})
    world.manager.tasks.dispatch.kick()
    await quiet()
    (order,) = worker.orders()
    assert (order["items"][0]["task_id"], order["unload"]) == (task_id, ["a"])


async def test_a_pinned_model_is_loaded_again_and_failures_are_spread(
    world: World,
) -> None:
    worker = await drawer(world)
    pin = {"model_name": "a", "worker_ids": [worker.id], "pin": True}
    await world.operate.tell("/models/assign", pin)
    await worker.fail(worker.take_one(), "no weights")
    assert (await models_of(world, worker))["a"]["status"] == "failed"
    await world.manager.models.memory.step()
    assert worker.take() == []
    world.clock.step(6.0)
    await beat(worker)
    await world.manager.models.memory.step()
    item = worker.take_one()
    await worker.finish(item, models=word(1, held("a")))
    assert (await world.read.ask("/tasks", dead="true"))["tasks"] == []
    await world.manager.models.memory.step()
    await worker.report(models=word(2))
    await world.manager.models.memory.step()
    assert worker.take_one()["model"] == "a"


async def test_pins_and_sizes_survive_the_manager(world: World) -> None:
    worker = await drawer(world)
    pin = {"model_name": "a", "worker_ids": [worker.id], "pin": True}
    await world.operate.tell("/models/assign", {**pin, "preload": False})
    await worker.report(models=word(1, held("b", 600.0), a=700.0))
    await world.manager.models.memory.step()
    async with running(inner=world.store.inner, clock=world.clock) as again:
        models, scheduler = (
            again.manager.models.memory,
            again.manager.ctx.cluster.scheduler,
        )
        assert list(models.pins) == [(worker.id, "a")]
        assert scheduler.known_model("b") == (600.0, 2.0)
        assert scheduler.known_model("a")[0] == 700.0
        await again.manager.workers.registry.stop(worker.id)
        await models.step()
        assert models.pins == {}
        assert await again.store.models.pins() == []


@pytest.fixture
async def tidy() -> AsyncIterator[World]:
    """A manager that drops models nobody has used for a minute."""
    config = replace(CONFIG, models=ModelConfig(idle_s=60.0))
    async with running(config) as made:
        yield made


async def test_a_model_that_nobody_uses_is_dropped_unless_it_is_pinned(
    tidy: World,
) -> None:
    worker = await drawer(tidy)
    await worker.report(models=word(1, held("a"), held("b"), held("c")))
    pin = {"model_name": "c", "worker_ids": [worker.id], "pin": True}
    await tidy.operate.tell("/models/assign", pin)
    tidy.clock.step(40.0)
    await beat(worker)
    item = (await draw(tidy, worker, "b"))["items"][0]
    await worker.finish(item)
    tidy.clock.step(30.0)
    await beat(worker)
    await tidy.manager.models.memory.step()
    (order,) = worker.orders()
    assert order["unload"] == ["a"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("assign", {"model_name": "a", "worker_ids": []}, 422),
        ("assign", {"model_name": "a b", "worker_ids": ["w"]}, 422),
        ("assign", {"model_name": "a", "worker_ids": ["nobody"]}, 404),
        ("assign", {"model_name": "a", "worker_ids": ["w"], "preload": False}, 422),
        ("unload", {"model_name": "a", "worker_ids": ["nobody"]}, 404),
        ("unload", {}, 422),
    ],
)
async def test_what_makes_no_sense_is_refused(
    world: World, path: str, body: Json, status: int
) -> None:
    assert (await world.operate.post(f"/models/{path}", body)).status_code == status


async def test_nobody_may_submit_the_tasks_that_load_and_drop(world: World) -> None:
    worker = await drawer(world)
    task = {"task_type": MODEL_TASK, "only_on": worker.id}
    fault(await world.admin.post("/tasks", task), 422, "invalid_field")
    fault(
        await world.admin.post("/job-types", {"name": MODEL_TASK}), 422, "invalid_field"
    )


async def test_a_node_is_not_lost_for_a_word_that_cannot_be_read(world: World) -> None:
    worker = await drawer(world)
    await beat(worker, models={"held": 1})
    assert await shown(world, worker) == []
    bad = await worker.report(models={"number": "one"})
    assert bad.status_code == 422
