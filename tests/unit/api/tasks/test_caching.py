"""Kept results: the same input is answered at once, as long as the answer stands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corral.core.tasks.result_cache import ROW_BYTES
from tests.twins.store import MemoryStore
from tests.unit.api.models.test_catalogue import added, sources, write
from tests.unit.api.world import (
    CONFIG,
    FakeWorker,
    Json,
    World,
    declared,
    fault,
    quiet,
    running,
    said,
)

pytestmark = pytest.mark.spec("C56")
SUM: Json = {"numbers": [1, 2], "of": "b"}


async def keeping(world: World, *job_types: str, ttl: float = 3600.0) -> FakeWorker:
    """A worker for types whose results are kept."""
    names = job_types or ("add",)
    worker = await world.worker(*names)
    for name in names:
        body = {"cache_ttl_s": ttl}
        said(await world.operate.send("PATCH", f"/job-types/{name}", json=body))
    return worker


async def ran(world: World, worker: FakeWorker, result: Any = 3, **task: Any) -> str:
    """Submit a task that a worker is given, and end it; its id."""
    task_id = await world.submit.submit(
        **{"task_type": "add", "parameters": SUM, **task}
    )
    await quiet()
    item = worker.take_one()
    assert item["task_id"] == task_id
    await worker.finish(item, result)
    return task_id


async def known(world: World, source: str, **task: Any) -> Json:
    """Submit a task that is answered with the result of `source`; as it stands."""
    body = {"task_type": "add", "parameters": SUM, **task}
    told = await world.submit.tell("/tasks", body)
    assert (told["status"], told.get("cached_from")) == ("completed", source)
    return await world.read.task(told["task_id"])


async def cache(world: World, name: str = "add") -> Json:
    told: Json = (await world.read.ask(f"/job-types/{name}"))["cache"]
    return told


async def test_the_same_input_is_answered_without_a_worker(world: World) -> None:
    worker = await keeping(world)
    first = await ran(world, worker)
    # The same, written otherwise.
    body = b'{"task_type": "add", "parameters": {"of":"b",  "numbers":[1,2]}}'
    told = said(await world.submit.post("/tasks", body))
    assert (told["status"], told["cached_from"]) == ("completed", first)
    assert told["estimated_wait_time"] == 0.0
    task = await world.read.task(told["task_id"])
    assert (task["status"], task["result"]) == ("completed", 3)
    assert (task["worker_id"], task["labels"]) == (None, {})
    assert (await world.read.task(first))["cached_from"] is None
    await quiet()
    assert worker.take() == []
    said_of_it = await world.read.ask(f"/tasks/{task['task_id']}/explain")
    assert first in said_of_it["headline"]
    waited = await world.submit.post("/tasks?wait=5", body)
    assert (waited.status_code, waited.json()["result"]) == (201, 3)


async def test_another_input_model_or_type_is_another_question(world: World) -> None:
    worker = await keeping(world, "add", "mean")
    await ran(world, worker)
    await ran(world, worker, parameters={**SUM, "numbers": [2, 1]})
    await ran(world, worker, parameters={**SUM, "numbers": [1, 2.0]})
    await ran(world, worker, task_type="mean")
    said(await worker.report(models={"number": 1, "held": [], "sizes": {"m": 1.0}}))
    source = await ran(world, worker, model_name="m")
    await known(world, source, model_name="m")


async def test_types_that_do_not_ask_for_it_keep_nothing(world: World) -> None:
    worker = await world.worker("add")
    for _ in range(2):
        await ran(world, worker)
    assert (await world.read.ask("/job-types/add"))["cache"] is None
    names = {name for name, _ in world.store.calls}
    assert names.isdisjoint({"find_results", "save_results"})


async def test_a_task_may_ask_to_run_and_its_result_counts_from_then(
    world: World,
) -> None:
    worker = await keeping(world)
    await ran(world, worker, 3)
    fresh = await ran(world, worker, 4, no_cache=True)
    assert (await known(world, fresh))["result"] == 4


async def test_a_paused_type_answers_what_it_knows_and_later_tasks_wait(
    world: World,
) -> None:
    first = await ran(world, await keeping(world))
    said(await world.operate.post("/job-types/add/pause"))
    await known(world, first)
    later = await world.submit.submit("add", parameters=SUM, run_after=60)
    assert await world.read.status(later) == "queued"


async def test_results_stand_for_the_time_their_type_says(world: World) -> None:
    worker = await keeping(world, ttl=60.0)
    first = await ran(world, worker)
    world.clock.step(59.0)
    await known(world, first)
    world.clock.step(1.0)
    second = await ran(world, worker)
    world.clock.step(30.0)
    await known(world, second)
    # Shorter from now on, also for what is there.
    body = {"cache_ttl_s": 20}
    said(await world.operate.send("PATCH", "/job-types/add", json=body))
    await world.manager.tasks.results.step()
    assert (await cache(world))["entries"] == 0
    await ran(world, worker)


async def test_those_used_last_stay_within_the_size_limit() -> None:
    text = "x" * 1000
    size = len(f'"{text}"') + ROW_BYTES
    config = replace(CONFIG, result_cache_bytes=size * 10)
    async with running(config) as world:
        worker = await keeping(world)
        ids = []
        for number in range(10):
            ids.append(await ran(world, worker, text, parameters=number))
            world.clock.step(1.0)
        told = await cache(world)
        assert (told["entries"], told["bytes"]) == (10, size * 10)
        await known(world, ids[0], parameters=0)
        world.clock.step(1.0)
        last = await ran(world, worker, text, parameters=10)
        await quiet()
        told = await cache(world)
        assert (told["entries"], told["bytes"]) == (9, size * 9)
        await known(world, ids[0], parameters=0)
        await known(world, last, parameters=10)
        await ran(world, worker, text, parameters=1)
        # What would push out too much is not kept at all.
        for _ in range(2):
            await ran(world, worker, text * 2, parameters="large")


async def test_without_room_nothing_is_kept() -> None:
    async with running(replace(CONFIG, result_cache_bytes=0)) as world:
        worker = await keeping(world)
        for _ in range(2):
            await ran(world, worker)


async def test_a_model_with_another_revision_is_asked_anew(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "tiny"
    write(folder)
    async with running(sources(tmp_path)) as world:
        await added(world, "tiny", "tiny")
        worker = await keeping(world)
        said(await worker.report(models={"number": 1, "held": [], "sizes": {}}))
        first = await ran(world, worker, model_name="tiny")
        await known(world, first, model_name="tiny")
        write(folder, {"config.json": b"{}"})
        await added(world, "tiny", "tiny")
        again = await ran(world, worker, 5, model_name="tiny")
        assert (await known(world, again, model_name="tiny"))["result"] == 5


async def test_a_model_that_only_the_input_names_has_no_revision_to_answer_under(
    tmp_path: Path,
) -> None:
    write(tmp_path / "models" / "tiny")
    async with running(sources(tmp_path)) as world:
        worker = await keeping(world)
        by_name: Json = {"parameters": {**SUM, "model": "tiny"}}
        first = await ran(world, worker, **by_name)
        await known(world, first, **by_name)
        await added(world, "tiny", "tiny")
        for _ in range(2):
            await ran(world, worker, **by_name)


async def test_an_answer_of_a_revision_that_went_meanwhile_is_not_kept(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "models" / "tiny"
    write(folder)
    async with running(sources(tmp_path)) as world:
        await added(world, "tiny", "tiny")
        worker = await keeping(world)
        said(await worker.report(models={"number": 1, "held": [], "sizes": {}}))
        task: Json = {"parameters": SUM, "model_name": "tiny"}
        await world.submit.submit("add", **task)
        await quiet()
        item = worker.take_one()
        write(folder, {"config.json": b"{}"})
        await added(world, "tiny", "tiny")
        await worker.finish(item, 3)
        assert (await cache(world))["entries"] == 0
        await ran(world, worker, model_name="tiny")


async def test_another_class_of_workers_is_asked_anew(world: World) -> None:
    worker = await keeping(world)
    first = await ran(world, worker)
    other = {**declared("two", "add"), "worker_class": "mine:Better"}
    node = await world.node(other)
    better = await node.workers["two"].start()
    # While both serve the type, what either said stands.
    await known(world, first)
    said(await world.operate.delete(f"/workers/{worker.id}"))
    await quiet()
    await ran(world, better)


async def test_kept_results_are_there_after_a_restart() -> None:
    store = MemoryStore()
    async with running(inner=store) as world:
        first = await ran(world, await keeping(world))
    async with running(inner=store) as world:
        assert (await known(world, first))["result"] == 3
        told = await cache(world)
        assert (told["entries"], told["hits"]) == (1, 1)


async def test_a_task_that_was_under_way_at_a_restart_is_kept() -> None:
    store = MemoryStore()
    long = {**SUM, "text": "x" * 10_000}
    async with running(inner=store) as world:
        await keeping(world)
        said(await world.operate.post("/job-types/add/pause"))
        source = await world.submit.submit("add", parameters=long)
    async with running(inner=store) as world:
        worker = await world.worker("add")
        said(await world.operate.post("/job-types/add/resume"))
        await quiet()
        await worker.finish(worker.take_one(), 3)
        await known(world, source, parameters=long)


@pytest.mark.parametrize(
    "more",
    [
        {"parameters": {"temperature": 0.7}},
        {"parameters": {"do_sample": True}},
        {"parameters": {"temperature": 0, "stream": True}},
        {"task_type": "llm", "parameters": {"text": "x"}},
        {"task_type": "draw", "parameters": {"prompt": "x"}},
        {"run_after": 0.0, "depends_on": ["before"]},
    ],
    ids=str,
)
async def test_what_may_be_answered_otherwise_each_time_runs(
    world: World, more: Json
) -> None:
    worker = await keeping(world, "add", "llm", "draw")
    if "depends_on" in more:
        await ran(world, worker, task_id="before", parameters="before")
    for _ in range(2):
        await ran(world, worker, **more)
    assert (await cache(world, more.get("task_type", "add")))["hits"] == 0


@pytest.mark.parametrize(
    "more",
    [
        {"parameters": {"temperature": 0.7, "seed": 1}},
        {"parameters": {"temperature": 0}},
        {"task_type": "llm", "parameters": {"text": "x", "temperature": 0.0}},
        {"task_type": "draw", "parameters": {"prompt": "x", "seed": 0}},
        {"parameters": "no object"},
        {"priority": "low", "labels": {"team": "x"}, "timeout": 5},
    ],
    ids=str,
)
async def test_what_is_the_same_each_time_is_kept(world: World, more: Json) -> None:
    worker = await keeping(world, "add", "llm", "draw")
    await known(world, await ran(world, worker, **more), **more)


async def test_failures_are_not_kept(world: World) -> None:
    worker = await keeping(world)
    await world.submit.submit("add", parameters=SUM)
    await quiet()
    await worker.fail(worker.take_one())
    await ran(world, worker)


async def test_results_are_forgotten_when_asked_to(world: World) -> None:
    worker = await keeping(world)
    await ran(world, worker)
    told = said(await world.operate.delete("/job-types/add/cache"))
    assert told["forgotten"] == 1
    await ran(world, worker)
    for change in ({"cache_ttl_s": None}, {"cache_ttl_s": 60}):
        said(await world.operate.send("PATCH", "/job-types/add", json=change))
    await ran(world, worker)
    fault(await world.operate.delete("/job-types/none/cache"), 404, "not_found")


async def test_the_cluster_tells_how_often_results_were_found(world: World) -> None:
    worker = await keeping(world)
    first = await ran(world, worker)
    await known(world, first)
    told = await world.read.ask("/cluster/metrics")
    assert told["metrics"]["result_cache"] == {
        "hits": 1,
        "misses": 1,
        "hit_rate": 0.5,
        "entries": 1,
        "bytes": 1 + ROW_BYTES,
    }
    rows = (await world.read.get("/metrics")).text.splitlines()
    for row in (
        'corral_result_cache_hits_total{task_type="add"} 1',
        'corral_result_cache_misses_total{task_type="add"} 1',
        'corral_result_cache_entries{task_type="add"} 1',
        f'corral_result_cache_bytes{{task_type="add"}} {1 + ROW_BYTES}',
    ):
        assert row in rows


@pytest.mark.parametrize("ttl", [0, -1, 0.5, 1e9])
async def test_a_time_out_of_bounds_is_refused(world: World, ttl: float) -> None:
    body = {"name": "add", "cache_ttl_s": ttl}
    error = fault(await world.operate.post("/job-types", body), 422, "invalid_field")
    assert error["details"]["field"] == "cache_ttl_s"
    await world.operate.tell("/job-types", {"name": "add"})
    for change in ({"cache_ttl_s": ttl}, {}):
        answer = await world.operate.send("PATCH", "/job-types/add", json=change)
        fault(answer, 422, "invalid_field")


async def test_scripts_are_not_kept(world: World) -> None:
    body = {"name": "run_script", "cache_ttl_s": 60}
    error = fault(await world.operate.post("/job-types", body), 422, "invalid_field")
    assert "files" in error["message"]
