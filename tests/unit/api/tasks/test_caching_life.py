"""Answered tasks are tasks like others: dependents, webhooks, retries, other faces."""

from __future__ import annotations

import asyncio

import pytest

from corral.core.access.key import Scope
from corral.manager.tasks.result_cache import MOST_BYTES
from tests.unit.api.openai.test_routes import answered, asked, serving
from tests.unit.api.tasks.test_caching import SUM, cache, keeping, known, ran
from tests.unit.api.world import Caller, Json, World, fault, quiet, said

pytestmark = pytest.mark.spec("C56")


async def test_a_batch_is_looked_up_at_once(world: World) -> None:
    worker = await keeping(world)
    source = await ran(world, worker, parameters=0)
    world.store.calls.clear()
    rows = [{"task_type": "add", "parameters": n % 10} for n in range(200)]
    told = await world.submit.tell("/tasks/batch", {"tasks": rows})
    looked = [count for name, count in world.store.calls if name == "find_results"]
    assert looked == [10]
    ids = told["task_ids"]
    tasks = [await world.read.task(i) for i in ids]
    hits = [t["parameters"] for t in tasks if t["cached_from"] == source]
    assert hits == [0] * 20
    assert [t["status"] == "completed" for t in tasks].count(True) == 20
    figures = await cache(world)
    assert (figures["hits"], figures["misses"]) == (20, 181)
    assert figures["hit_rate"] == round(20 / 201, 4)


async def test_one_request_is_given_so_much_and_the_rest_of_it_runs(
    world: World,
) -> None:
    worker = await keeping(world)
    await ran(world, worker, "x" * (MOST_BYTES // 10))
    rows = [{"task_type": "add", "parameters": SUM}] * 12
    told = await world.submit.tell("/tasks/batch", {"tasks": rows})
    live = [i for i in told["task_ids"] if world.manager.ctx.cluster.is_live(i)]
    assert (len(live), (await cache(world))["hits"]) == (3, 9)


async def test_tasks_that_depend_on_an_answered_one_start(world: World) -> None:
    worker = await keeping(world)
    await world.operate.tell("/job-types", {"name": "next"})
    await ran(world, worker)
    other = await world.worker("next")
    rows: list[Json] = [
        {"task_type": "add", "parameters": SUM, "task_id": "known"},
        {"task_type": "next", "depends_on": ["known"], "task_id": "after"},
    ]
    told = await world.submit.tell("/tasks/batch", {"tasks": rows})
    assert told["accepted"] == 2
    await quiet()
    item = other.take_one()
    assert item["task_id"] == "after"
    await other.finish(item)
    later = await world.submit.submit("next", depends_on=["known"])
    await quiet()
    assert other.take_one()["task_id"] == later


async def test_who_is_to_be_told_of_its_end_is_told(world: World) -> None:
    worker = await keeping(world)
    first = await ran(world, worker)
    ended: list[str] = []
    signal = world.manager.ctx.signals.ended
    signal.listen(lambda rows: ended.extend(task.id for task, _ in rows))
    task = await known(world, first, notify="http://127.0.0.1:9/x")
    assert ended == [task["task_id"]]
    (notice,) = await world.store.queues.notices()
    assert notice.task_id == task["task_id"]
    events = (await world.read.ask("/events", limit=5))["events"]
    of_it = [e["event_type"] for e in events if task["task_id"] in e["task_ids"]]
    assert of_it == ["tasks_submitted", "tasks_settled"]


async def test_an_id_or_key_given_twice_makes_one_task(world: World) -> None:
    worker = await keeping(world)
    source = await ran(world, worker)
    task = {"task_type": "add", "parameters": SUM, "idempotency_key": "k"}
    first = await world.submit.post("/tasks", task)
    again = await world.submit.post("/tasks", task)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["task_id"] == again.json()["task_id"]
    assert again.json()["cached_from"] == source


async def test_an_answered_task_runs_when_it_is_requeued(world: World) -> None:
    worker = await keeping(world)
    first = await ran(world, worker)
    task = await known(world, first)
    said(await world.submit.post(f"/tasks/{task['task_id']}/requeue"))
    await quiet()
    await worker.finish(worker.take_one(), 7)
    task = await world.read.task(task["task_id"])
    assert (task["result"], task["cached_from"]) == (7, None)
    assert (await known(world, task["task_id"]))["result"] == 7


async def test_owners_share_what_all_of_them_may_read(world: World) -> None:
    worker = await keeping(world)
    first = await ran(world, worker)
    _, key = await world.manager.access.keys.create(Scope.SUBMIT, "bob")
    bob = Caller(world.http, key)
    # Bob may read Ann's task, so her result tells him nothing new.
    assert (await bob.task(first))["result"] == 3
    told = await bob.tell("/tasks", {"task_type": "add", "parameters": SUM})
    assert told["cached_from"] == first
    assert (await bob.task(told["task_id"]))["owner"] == "bob"


async def test_an_outage_of_the_cache_loses_no_task(world: World) -> None:
    worker = await keeping(world)
    world.store.loses_answer("save_results")
    first = await ran(world, worker)
    world.store.loses_answer("find_results")
    second = await ran(world, worker)
    assert [await world.read.status(i) for i in (first, second)] == ["completed"] * 2
    await known(world, second)


async def test_a_lost_answer_to_an_answered_submit_is_repeated(world: World) -> None:
    worker = await keeping(world)
    source = await ran(world, worker)
    world.store.loses_answer("insert_tasks")
    body = {"task_type": "add", "parameters": SUM, "task_id": "mine"}
    fault(await world.submit.post("/tasks", body), 503, "store_unavailable")
    again = await world.submit.post("/tasks", body)
    assert (again.status_code, again.json()["cached_from"]) == (200, source)
    assert worker.take() == []


async def test_the_openai_face_is_answered_from_it(world: World) -> None:
    worker = await serving(world)
    for name in ("generate", "embed"):
        change = {"cache_ttl_s": 60}
        said(await world.operate.send("PATCH", f"/job-types/{name}", json=change))
    cold: Json = {"prompt": "once", "temperature": 0}
    vectors = {"embeddings": [[0.5, 1.0]], "dimensions": 2, "tokens": 2}
    calls: list[tuple[str, Json, Json]] = [
        ("/v1/completions", cold, answered("upon a time")),
        ("/v1/embeddings", {"input": "hello"}, vectors),
    ]
    for path, body, result in calls:
        call = await asked(world, path, **body)
        await worker.finish(worker.take_one(), result)
        first = said(await call)
        async with asyncio.timeout(60):
            again = said(await world.submit.post(path, {"model": "m", **body}))
        assert worker.take() == []
        for name in ("choices", "data", "usage"):
            assert again.get(name) == first.get(name)
