"""Models that go to other workers, and models that come before they are asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from corral.core.tasks.job_type import MODEL_TASK
from corral.scheduler.policy import Policy
from tests.unit.api.models.test_memory import held, shown, word
from tests.unit.api.world import (
    CONFIG,
    FakeWorker,
    Json,
    World,
    declared,
    fault,
    running,
    said,
)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A manager whose workers hold four models at most."""
    config = replace(CONFIG, policy=Policy(most_models=4, prefetch="pattern"))
    async with running(config) as made:
        yield made


async def crowd(world: World) -> tuple[FakeWorker, FakeWorker]:
    """One worker that is full, and one that is empty."""
    node = await world.node(declared("full", "draw"), declared("empty", "draw"))
    full = await node.workers["full"].start()
    empty = await node.workers["empty"].start()
    await full.report(models=word(1, *(held(name) for name in "abcd")))
    return full, empty


async def rebalance(world: World, **body: Any) -> Json:
    return await world.operate.tell("/cluster/rebalance", body)


async def events(world: World) -> list[Json]:
    rows = (await world.read.ask("/events"))["events"]
    return [r for r in rows if r["event_type"].startswith("cluster_rebalance")]


@pytest.mark.spec("C26")
async def test_a_dry_run_says_what_would_move_and_moves_nothing(world: World) -> None:
    full, empty = await crowd(world)
    told = await rebalance(world, dry_run=True)
    assert told["status"] == "dry_run"
    assert told["strategy"] == "memory_optimized"
    assert told["rebalance_id"]
    assert told["affected_workers"] == sorted([full.id, empty.id])
    first, second = told["operations"]
    assert told["estimated_duration"] == 4.0
    for move in (first, second):
        assert (move["from_worker"], move["to_worker"]) == (full.id, empty.id)
        assert move["type"] == "model_migration"
        assert move["saves_s"] > move["costs_s"]
    assert first["model"] != second["model"]
    assert empty.take() == full.take() == []
    assert await events(world) == []


@pytest.mark.spec("C26")
async def test_a_model_is_loaded_elsewhere_before_it_is_dropped(world: World) -> None:
    full, empty = await crowd(world)
    told = await rebalance(world)
    assert told["status"] == "initiated"
    moved = {move["model"] for move in told["operations"]}
    (started,) = await events(world)
    assert started["event_type"] == "cluster_rebalance_started"
    assert started["data"]["rebalance_id"] == told["rebalance_id"]
    again = await world.operate.post("/cluster/rebalance", {})
    assert "under way" in fault(again, 409, "conflict")["message"]
    loaded: list[Json] = []
    for number in (1, 2):
        item = empty.take_one()
        assert item["job_type"] == MODEL_TASK
        await world.manager.models.rebalancer.step()
        loaded.append(held(item["model"], at=float(number)))
        await empty.finish(item, models=word(number, *loaded))
    assert {model["name"] for model in loaded} == moved
    await world.manager.models.rebalancer.step()
    kept = set("abcd")
    for number in (2, 3):
        (order,) = full.orders()
        kept -= set(order["unload"])
        rest = [held(name) for name in sorted(kept)]
        await full.finish(order["items"][0], models=word(number, *rest))
    assert kept == set("abcd") - moved
    assert set(await shown(world, empty)) == moved
    kinds = [event["event_type"] for event in await events(world)]
    assert sorted(kinds) == ["cluster_rebalance_finished", "cluster_rebalance_started"]
    assert (await rebalance(world))["status"] == "balanced"


async def test_a_load_that_fails_leaves_the_model_where_it_is(world: World) -> None:
    full, empty = await crowd(world)
    await rebalance(world)
    for _ in range(2):
        await empty.fail(empty.take_one(), "no weights")
    await world.manager.models.rebalancer.step()
    world.clock.step(11.0)
    await world.manager.models.rebalancer.step()
    assert full.take() == []
    assert await shown(world, full) == list("abcd")
    kinds = [event["event_type"] for event in await events(world)]
    assert kinds.count("cluster_rebalance_move_failed") == 2
    assert "cluster_rebalance_finished" in kinds


async def test_busy_workers_are_left_alone_unless_forced(world: World) -> None:
    full, _ = await crowd(world)
    await world.submit.submit("draw", model_name="a")
    assert len(full.take()) == 1
    assert (await rebalance(world, dry_run=True))["operations"] == []
    forced = await rebalance(world, dry_run=True, force=True)
    moved = {move["model"] for move in forced["operations"]}
    assert moved
    assert "a" not in moved


async def test_a_pinned_model_does_not_move(world: World) -> None:
    full, _ = await crowd(world)
    for name in "abc":
        pin = {"model_name": name, "worker_ids": [full.id], "pin": True}
        await world.operate.tell("/models/assign", pin)
    told = await rebalance(world, dry_run=True)
    assert [move["model"] for move in told["operations"]] == ["d"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"strategy": "fastest"}, "say memory_optimized or load_balanced"),
        ({"dry_run": "perhaps"}, "dry_run"),
        ({"what": 1}, "what"),
    ],
)
async def test_what_makes_no_sense_is_refused(
    world: World, body: Json, words: str
) -> None:
    answer = await world.operate.post("/cluster/rebalance", body)
    assert words in fault(answer, 422, "invalid_field")["message"]


async def test_a_body_is_not_needed(world: World) -> None:
    answer = await world.operate.send("POST", "/cluster/rebalance")
    assert said(answer)["status"] == "balanced"


# before anybody asks ---------------------------------------------------------
async def ask(world: World, worker: FakeWorker, number: int, *models: Json) -> Json:
    """A task with the first model, served; its order."""
    await world.submit.submit("draw", model_name=models[0]["name"])
    (order,) = worker.orders()
    await worker.finish(order["items"][0], models=word(number, *models))
    return order


@pytest.mark.spec("C57")
async def test_a_model_is_there_when_its_time_comes(world: World) -> None:
    worker = await world.worker("draw")
    for number in range(4):
        await ask(world, worker, 2 * number + 1, held("a", at=float(number)))
        await worker.report(models=word(2 * number + 2))
        await world.step(100.0, worker.node)
        assert await shown(world, worker) == []
    await world.manager.models.prefetcher.step()
    item = worker.take_one()
    assert (item["job_type"], item["model"]) == (MODEL_TASK, "a")
    await world.manager.models.prefetcher.step()
    assert worker.take() == []
    await worker.finish(item, models=word(20, held("a", at=9.0)))
    assert await shown(world, worker) == ["a"]
    row = await world.read.ask("/tasks", status="completed", limit=1)
    assert row["tasks"][0]["task_type"] == MODEL_TASK


async def test_without_a_rhythm_nothing_is_loaded(world: World) -> None:
    worker = await world.worker("draw")
    for number, gap_s in enumerate((10.0, 400.0, 55.0, 3.0, 120.0)):
        await ask(world, worker, 2 * number + 1, held("a", at=float(number)))
        await worker.report(models=word(2 * number + 2))
        await world.step(gap_s, worker.node)
        await world.manager.models.prefetcher.step()
        assert worker.take() == []
