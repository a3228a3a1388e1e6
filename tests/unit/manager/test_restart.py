"""A manager that starts again on the same store takes over what its former self had."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from corral.manager.config import ManagerConfig
from corral.scheduler.scheduler import Policy
from tests.twins.engine import InlineDispatcher
from tests.twins.store import MemoryStore
from tests.unit.api.world import (
    SECRET,
    Caller,
    FakeWorker,
    StepClock,
    World,
    declared,
    fault,
    quiet,
    running,
    said,
)


class Lives:
    """One store, clock and Redis; managers that come and go."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack = stack
        self.store = MemoryStore()
        self.clock = StepClock()
        self.engine = InlineDispatcher()
        self.config = ManagerConfig(SECRET)

    async def next(self) -> World:
        """End the manager there is, and start another."""
        await self.stack.aclose()
        self.engine.sent.clear()
        made = running(
            inner=self.store, clock=self.clock, engine=self.engine, config=self.config
        )
        return await self.stack.enter_async_context(made)


@pytest.fixture
async def lives() -> Lives:
    return Lives(AsyncExitStack())


@pytest.fixture(autouse=True)
async def end(lives: Lives):  # type: ignore[no-untyped-def]
    yield
    await lives.stack.aclose()


def follow(worker: FakeWorker, world: World) -> None:
    """The worker's process lives on and finds the new manager."""
    worker.node.world = world
    key = worker.node.caller.headers["Authorization"].removeprefix("Bearer ")
    worker.node.caller = Caller(world.http, key)


@pytest.mark.spec("C54")
async def test_queued_tasks_are_found_again_in_their_order(lives: Lives) -> None:
    world = await lives.next()
    await world.operate.tell("/job-types", {"name": "echo"})
    low = await world.submit.submit(priority="low", parameters={"n": 1})
    high = await world.submit.submit(priority="high", parameters="x" * 5000)
    world = await lives.next()
    worker = await world.worker("echo")
    item = worker.take_one()
    assert (item["task_id"], item["payload"]) == (high, "x" * 5000)
    await worker.finish(item)
    item = worker.take_one()
    assert (item["task_id"], item["payload"]) == (low, {"n": 1})


async def test_a_running_task_goes_on_and_its_result_is_taken(lives: Lives) -> None:
    world = await lives.next()
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    item = worker.take_one()
    await worker.begin(item)
    world = await lives.next()
    follow(worker, world)
    assert await world.read.status(task_id) == "running"
    await world.step(5)
    await worker.node.beat(worker.word(item, state="busy"))
    await worker.finish(item, "still here")
    task = await world.read.task(task_id)
    assert (task["result"], task["attempt"]) == ("still here", 1)
    next_id = await world.submit.submit()
    assert worker.take_one()["task_id"] == next_id, "its slot is free again"


async def test_a_worker_with_work_from_before_gets_no_more_than_its_slots(
    lives: Lives,
) -> None:
    world = await lives.next()
    worker = await world.worker("echo")
    await world.submit.submit()
    item = worker.take_one()
    await world.submit.submit()
    world = await lives.next()
    follow(worker, world)
    await worker.node.beat(worker.word(item, state="busy"))
    assert worker.take() == []


async def test_each_task_from_before_takes_a_slot_of_its_own(lives: Lives) -> None:
    world = await lives.next()
    worker = await world.worker("echo", concurrency=3)
    for _ in range(2):
        await world.submit.submit()
    items = worker.take()
    world = await lives.next()
    follow(worker, world)
    await worker.node.beat(worker.word(*items, state="busy"))
    third, fourth = [await world.submit.submit() for _ in range(2)]
    assert worker.take_one()["task_id"] == third
    assert (await world.read.task(fourth))["waiting"]["reason"] == "workers_busy"
    await worker.finish(items[0])
    assert worker.take_one()["task_id"] == fourth


async def test_a_critical_task_takes_the_place_of_one_from_before(
    lives: Lives,
) -> None:
    lives.config = ManagerConfig(SECRET, policy=Policy(preempts=True))
    world = await lives.next()
    worker = await world.worker("echo", concurrency=2)
    for _ in range(2):
        await world.submit.submit(preemptible=True)
    items = worker.take()
    for item in items:
        await worker.begin(item)
    world = await lives.next()
    follow(worker, world)
    await worker.node.beat(worker.word(*items, state="busy"))
    urgent = await world.submit.submit(priority="critical")
    await quiet()
    told = await worker.node.beat(worker.word(*items, state="busy"))
    (dropped,) = told["drop"]
    assert dropped[0] in {item["task_id"] for item in items}
    (again,) = [i for i in worker.take() if i["task_id"] == urgent]
    assert again["attempt"] == 1
    assert (await world.read.task(dropped[0]))["attempt"] == 2


async def test_a_task_whose_worker_is_gone_meanwhile_runs_again(lives: Lives) -> None:
    world = await lives.next()
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    worker.take_one()
    world = await lives.next()
    follow(worker, world)
    await worker.register(pid=5000)
    said(await worker.report(state="ready"))
    item = worker.take_one()
    assert (item["task_id"], item["attempt"]) == (task_id, 2)


async def test_many_tasks_of_a_worker_that_was_removed_go_back_in_one_write(
    lives: Lives,
) -> None:
    world = await lives.next()
    worker = await world.worker("echo", concurrency=50)
    rows = [{"task_type": "echo"} for _ in range(50)]
    told = await world.submit.tell("/tasks/batch", {"tasks": rows})
    assert len(worker.take()) == 50
    await lives.store.registry.delete_worker(worker.id)
    world = await lives.next()
    writes = [rows for name, rows in world.store.calls if name == "settle_tasks"]
    assert writes == [50]
    other = await world.worker("echo", concurrency=50)
    assert {item["task_id"] for item in other.take()} == set(told["task_ids"])


async def test_an_order_lost_in_the_restart_is_given_again(lives: Lives) -> None:
    world = await lives.next()
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    world = await lives.next()  # with it, what lay in the queue
    follow(worker, world)
    for _ in range(3):
        await world.step(5, worker.node)
    item = worker.take_one()
    assert (item["task_id"], item["attempt"]) == (task_id, 2)


async def test_every_lease_gets_a_fresh_grace(lives: Lives) -> None:
    world = await lives.next()
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    worker.take_one()
    lives.clock.step(3600)
    world = await lives.next()
    await world.step(15)
    assert (await world.read.task(task_id))["attempt"] == 1
    await world.step(5)
    assert (await world.read.task(task_id))["attempt"] == 2


async def test_a_dependent_still_waits_and_falls_or_starts_as_it_should(
    lives: Lives,
) -> None:
    world = await lives.next()
    worker = await world.worker("echo", concurrency=2)
    good, bad = await world.submit.submit(), await world.submit.submit()
    after_good = await world.submit.submit(depends_on=[good])
    after_bad = await world.submit.submit(depends_on=[bad])
    items = {item["task_id"]: item for item in worker.take()}
    world = await lives.next()
    follow(worker, world)
    await worker.node.beat(worker.word(*items.values()))
    assert (await world.read.task(after_good))["waiting"]["reason"] == "dependencies"
    await worker.finish(items[good], 1)
    assert worker.take_one()["task_id"] == after_good
    await worker.fail(items[bad])
    assert await world.read.status(after_bad) == "failed"


async def test_a_dependent_whose_dependency_fell_just_before_the_end_falls(
    lives: Lives,
) -> None:
    world = await lives.next()
    worker = await world.worker("echo")
    one = await world.submit.submit()
    two = await world.submit.submit(depends_on=[one])
    three = await world.submit.submit(depends_on=[two])
    world.store.fails_after("settle_tasks", 1)  # the manager dies between two writes
    error = {"kind": "exception", "message": "it broke"}
    ended = {"task_id": one, "attempt": 1, "kind": "failed", "error": error}
    await worker.report(outcomes=[ended])
    assert (await lives.store.tasks.get_tasks([one]))[0].is_terminal
    assert not (await lives.store.tasks.get_tasks([two]))[0].is_terminal
    world = await lives.next()
    follow(worker, world)
    await worker.node.beat(worker.word())
    await quiet()
    assert worker.take() == []
    assert await world.read.status(two) == "failed"
    assert await world.read.status(three) == "failed"


async def test_keys_nodes_workers_and_job_types_are_still_known(lives: Lives) -> None:
    world = await lives.next()
    worker = await world.worker("echo")
    old_admin = world.admin.headers["Authorization"].removeprefix("Bearer ")
    world = await lives.next()
    follow(worker, world)
    assert (await Caller(world.http, old_admin).get("/tasks")).status_code == 200
    told = await world.read.ask(f"/workers/{worker.id}")
    assert told["job_types"] == ["echo"]
    assert [j["name"] for j in (await world.read.ask("/job-types"))["job_types"]] == [
        "echo"
    ]
    await worker.node.beat(worker.word())
    assert (await world.read.ask(f"/workers/{worker.id}"))["status"] == "online"


async def test_an_agent_learns_of_a_worker_launched_across_a_restart(
    lives: Lives,
) -> None:
    world = await lives.next()
    node = await world.node(declared("one"))
    body = {"worker_class": "a:B", "node_id": node.id}
    await world.operate.tell("/workers", body)
    seen = (await node.caller.ask(f"/nodes/{node.id}/desired"))["version"]
    world = await lives.next()
    key = node.caller.headers["Authorization"].removeprefix("Bearer ")
    caller = Caller(world.http, key)
    for _ in range(3):
        await world.operate.tell("/workers", body)
        told = await caller.ask(f"/nodes/{node.id}/desired", since=seen, wait=0)
        assert told["version"] != seen
        assert len(told["workers"]) > 2


async def test_a_deposed_manager_writes_nothing(lives: Lives) -> None:
    world = await lives.next()
    await world.operate.tell("/job-types", {"name": "echo"})
    async with running(inner=lives.store, clock=lives.clock) as other:
        answer = await world.submit.post("/tasks", {"task_type": "echo"})
        fault(answer, 503, "not_leader")
        assert (await other.read.ask("/tasks"))["total"] == 0
        await other.submit.submit()
        assert (await other.read.ask("/tasks"))["total"] == 1
