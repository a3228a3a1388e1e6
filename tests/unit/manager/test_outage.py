"""Redis or the database away, slow, or with its answer lost: nothing is forgotten."""

from __future__ import annotations

import asyncio

import pytest

from corral.core.tasks.task import State
from corral.scheduler.events import Paused
from tests.unit.api.world import World, declared, fault, outcome, quiet, said

# Redis -----------------------------------------------------------------------


@pytest.mark.spec("C54")
async def test_tasks_wait_while_redis_is_away_and_are_sent_when_it_is_back(
    world: World,
) -> None:
    worker = await world.worker("echo")
    world.engine.is_down = True
    task_id = await world.submit.submit()
    await quiet()
    task = await world.read.task(task_id)
    assert (task["status"], task["tries"], task["losses"]) == ("queued", 0, 0)
    assert task["waiting"]["reason"] == "engine_down"
    await world.step(1, worker.node)
    assert await world.read.status(task_id) == "queued"
    world.engine.is_down = False
    await world.step(1, worker.node)
    assert worker.take_one()["task_id"] == task_id


async def test_a_redis_found_away_by_the_watch_says_so_before_a_task_is_lost_on_it(
    world: World,
) -> None:
    worker = await world.worker("echo")
    world.engine.is_down = True
    await world.step(1, worker.node)
    task_id = await world.submit.submit()
    task = await world.read.task(task_id)
    assert (task["attempt"], task["waiting"]["reason"]) == (1, "engine_down")


async def test_many_orders_planned_when_redis_goes_away_all_come_back(
    world: World,
) -> None:
    worker = await world.worker("echo", concurrency=20)
    world.engine.is_down = True
    rows = [{"task_type": "echo"} for _ in range(20)]
    told = await world.submit.tell("/tasks/batch", {"tasks": rows})
    await quiet()
    world.engine.is_down = False
    await world.step(1, worker.node)
    assert {item["task_id"] for item in worker.take()} == set(told["task_ids"])


# the database ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/tasks"),
        ("GET", "/tasks"),
        ("GET", "/tasks/some"),
        ("GET", "/cluster/status"),
        ("GET", "/events"),
        ("POST", "/join-tokens"),
    ],
)
@pytest.mark.spec("A8")
async def test_a_store_that_is_away_is_answered_with_503_and_when_to_come_back(
    world: World, method: str, path: str
) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    world.store.is_down = True
    body = {"task_type": "echo"} if path == "/tasks" else {}
    answer = await world.admin.send(method, path, json=body)
    fault(answer, 503, "store_unavailable")
    assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.spec("A8")
async def test_a_task_refused_for_want_of_a_store_leaves_no_trace(world: World) -> None:
    worker = await world.worker("echo")
    world.store.is_down = True
    body = {"task_type": "echo", "task_id": "mine"}
    fault(await world.submit.post("/tasks", body), 503, "store_unavailable")
    world.store.is_down = False
    await world.step(1, worker.node)
    assert worker.take() == []
    assert world.manager.ctx.cluster.tasks == {}
    assert (await world.submit.post("/tasks", body)).status_code == 201
    assert worker.take_one()["task_id"] == "mine"


async def test_a_submit_whose_answer_was_lost_is_found_and_runs(world: World) -> None:
    worker = await world.worker("echo")
    body = {"task_type": "echo", "task_id": "mine"}
    world.store.loses_answer("insert_tasks")
    fault(await world.submit.post("/tasks", body), 503, "store_unavailable")
    for _ in range(4):
        await world.step(5, worker.node)
    assert worker.take_one()["task_id"] == "mine"
    assert (await world.submit.post("/tasks", body)).status_code == 200


async def test_a_placement_whose_answer_was_lost_is_found_and_runs(
    world: World,
) -> None:
    worker = await world.worker("echo")
    await world.submit.submit()
    item = worker.take_one()
    task_id = await world.submit.submit()
    world.store.loses_answer("place_tasks")
    await worker.finish(item)
    for _ in range(4):
        await world.step(5, worker.node)
    assert worker.take_one()["task_id"] == task_id
    assert (await world.read.task(task_id))["losses"] == 0


async def test_an_outcome_whose_answer_was_lost_is_recorded_once(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    item = worker.take_one()
    world.store.loses_answer("settle_tasks")
    body = {"outcomes": [outcome(item, "done")]}
    fault(await worker.report("r-1", **body), 503, "store_unavailable")
    said(await worker.report("r-1", **body))
    await world.step(1, worker.node)
    task = await world.read.task(task_id)
    assert (task["status"], task["result"]) == ("completed", "done")
    assert world.manager.ctx.cluster.tasks == {}
    assert await world.submit.submit() == worker.take_one()["task_id"], "slot is free"


async def test_who_waits_for_a_task_is_told_though_the_answer_was_lost(
    world: World,
) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    poll = asyncio.create_task(world.read.ask(f"/tasks/{task_id}", wait=60))
    await quiet()
    world.store.loses_answer("settle_tasks")
    fault(
        await worker.report(outcomes=[outcome(worker.take_one())]),
        503,
        "store_unavailable",
    )
    await world.step(1, worker.node)
    assert (await poll)["status"] == "completed"


@pytest.mark.parametrize("is_completed", [True, False])
async def test_dependents_follow_a_task_whose_end_was_found_out_later(
    world: World, is_completed: bool
) -> None:
    worker = await world.worker("echo")
    one = await world.submit.submit()
    two = await world.submit.submit(depends_on=[one])
    item = worker.take_one()
    kind = "completed" if is_completed else "failed"
    world.store.loses_answer("settle_tasks")
    await worker.report(outcomes=[outcome(item, kind=kind, result=5)])
    await world.step(1, worker.node)
    if is_completed:
        assert worker.take_one()["inputs"] == {one: 5}
    else:
        assert await world.read.status(two) == "failed"


async def test_a_deadline_that_passed_while_the_store_was_away_is_kept(
    world: World,
) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    task_id = await world.submit.submit(deadline=10)
    world.store.is_down = True
    world.clock.step(11)
    world.manager.tasks.dispatch.kick()
    await quiet()
    world.store.is_down = False
    await world.step(1)
    await world.step(1)
    assert await world.read.status(task_id) == "timed_out"


async def test_orders_that_could_not_be_placed_are_placed_later(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    tasks = {await world.submit.submit() for _ in range(5)}
    world.store.fails_after("place_tasks", 0)
    worker = await world.worker("echo", concurrency=5)
    assert worker.take() == []
    world.store.is_down = False
    await world.step(1, worker.node)
    assert {item["task_id"] for item in worker.take()} == tasks


async def test_a_worker_that_dies_while_its_order_is_being_placed_costs_nothing(
    world: World,
) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    task_id = await world.submit.submit()
    node = await world.node(declared("one", "echo"), declared("two", "echo"))
    one, two = node.workers["one"], node.workers["two"]
    reached, release = world.store.hold("place_tasks")
    start = asyncio.create_task(one.start())
    await reached.wait()
    await start
    await node.beat(one.word(state="lost", pid=None), two.word(pid=None))
    release.set()
    await quiet()
    assert (await world.read.task(task_id))["status"] == "queued"
    await two.start()
    assert two.take_one()["task_id"] == task_id
    assert one.orders() == []


async def test_a_worker_that_dies_while_a_submit_plans_for_it_costs_nothing(
    world: World,
) -> None:
    worker = await world.worker("echo", concurrency=2)
    await world.admin.tell("/cluster/drain")
    waits = await world.submit.submit()
    await quiet()
    reached, release = world.store.hold("insert_tasks")
    # No kick, so that it is the submit that plans for the task already there.
    world.manager.ctx.cluster.scheduler.apply(Paused(False))
    submit = asyncio.create_task(world.submit.submit())
    await reached.wait()
    await worker.node.beat(worker.word(state="lost", pid=None))
    release.set()
    also = await submit
    await quiet()
    await worker.register(pid=4001)
    said(await worker.report(state="ready"))
    await world.step(1, worker.node)
    assert {item["task_id"] for item in worker.take()} == {waits, also}


async def test_every_task_lives_through_a_flapping_store(world: World) -> None:
    worker = await world.worker("echo", concurrency=3)
    accepted = []
    for n in range(30):
        world.store.is_down = n % 3 == 1
        if n % 5 == 2:
            world.store.loses_answer("settle_tasks")
        if n % 7 == 3:
            world.store.loses_answer("place_tasks")
        answer = await world.submit.post("/tasks", {"task_type": "echo", "retries": 3})
        if answer.status_code == 201:
            accepted.append(answer.json()["task_id"])
        for item in worker.take():
            await worker.report(outcomes=[outcome(item, item["task_id"])])
        await quiet()
    world.store.is_down = False
    for _ in range(40):
        await world.step(5, worker.node)
        for item in worker.take():
            await worker.report(outcomes=[outcome(item, item["task_id"])])
    for task_id in accepted:
        task = await world.read.task(task_id)
        assert (task["status"], task["result"]) == ("completed", task_id)
    assert [
        t for t in world.manager.ctx.cluster.tasks.values() if t.id in accepted
    ] == []
    counts = await world.store.inner.tasks.count_tasks()
    assert set(counts) == {State.COMPLETED}
