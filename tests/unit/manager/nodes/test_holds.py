"""Held nodes: nothing new comes, what runs ends, workers rest and come back."""

from __future__ import annotations

from typing import Any

import pytest

from corral.core.nodes.node import Hold, HoldSource
from tests.unit.api.world import FakeNode, FakeWorker, World, declared, fault, quiet

Json = dict[str, Any]


async def say(world: World, node: FakeNode, verb: str, **body: Any) -> Json:
    return await world.operate.tell(f"/nodes/{node.id}/{verb}", body)


async def look(world: World, node: FakeNode) -> Json:
    return await world.read.ask(f"/nodes/{node.id}")


async def wanted(node: FakeNode) -> list[str]:
    told = await node.caller.ask(f"/nodes/{node.id}/desired")
    return [row["worker_id"] for row in told["workers"]]


async def step(world: World) -> None:
    await world.manager.nodes.holds.step()
    await quiet()


async def kinds(world: World) -> list[str]:
    told = await world.read.ask("/events", limit=1000)
    return [event["event_type"] for event in told["events"]]


async def node_with(world: World, *names: str) -> tuple[FakeNode, list[FakeWorker]]:
    node = await world.node(*(declared(name, "echo") for name in names))
    return node, [await node.workers[name].start() for name in names]


async def test_a_cordoned_node_gets_nothing_new_and_keeps_its_workers(
    world: World,
) -> None:
    node, (worker,) = await node_with(world, "one")
    first = await world.submit.submit()
    item = worker.take_one()
    told = await say(world, node, "cordon", reason="cables")
    assert told["scheduling"] == "cordoned"
    assert told["running_tasks"] == 1
    (hold,) = told["holds"]
    assert (hold["source"], hold["reason"], hold["drain"]) == (
        "operator",
        "cables",
        False,
    )
    second = await world.submit.submit()
    await worker.finish(item, wants_order=True)
    await step(world)
    assert worker.take() == []
    assert await world.read.status(first) == "completed"
    waiting = (await world.read.task(second))["waiting"]
    assert waiting["reason"] == "node_held"
    assert "cables" in waiting["message"]
    assert await wanted(node) == [worker.id]
    told = await say(world, node, "uncordon")
    assert (told["scheduling"], told["holds"]) == ("open", [])
    await quiet()
    assert worker.take_one()["task_id"] == second
    assert {"node_cordoned", "node_uncordoned"} <= set(await kinds(world))


async def test_workers_of_a_drained_node_are_stopped_one_by_one_as_they_end(
    world: World,
) -> None:
    node, (one, two) = await node_with(world, "one", "two")
    task_id = await world.submit.submit()
    busy, idle = (one, two) if (items := one.take()) else (two, one)
    (item,) = items or busy.take()
    await busy.begin(item)
    told = await say(world, node, "drain")
    assert told["scheduling"] == "draining"
    assert await wanted(node) == [busy.id]
    await node.beat(busy.word(item, state="busy"))
    await step(world)
    assert await wanted(node) == [busy.id]
    await busy.finish(item)
    await step(world)
    assert await wanted(node) == []
    assert (await look(world, node))["scheduling"] == "draining"
    await node.beat()
    await step(world)
    assert (await look(world, node))["scheduling"] == "drained"
    task = await world.read.task(task_id)
    assert (task["status"], task["attempt"], task["losses"]) == ("completed", 1, 0)
    assert (await kinds(world)).count("node_drained") == 1
    assert idle.id != busy.id


async def test_workers_come_back_after_a_drain(world: World) -> None:
    node, (worker,) = await node_with(world, "one")
    await say(world, node, "drain")
    await node.beat()
    await step(world)
    task_id = await world.submit.submit()
    assert (await world.read.task(task_id))["waiting"]["reason"] == "node_held"
    await say(world, node, "uncordon")
    assert await wanted(node) == [worker.id]
    await worker.register(pid=4001)
    await worker.report(state="ready")
    assert worker.take_one()["task_id"] == task_id


async def test_a_worker_that_may_have_been_stopped_is_started_anew(
    world: World,
) -> None:
    """Nobody knows whether its agent had heard of the drain."""
    node, (worker,) = await node_with(world, "one")
    await say(world, node, "drain")
    await say(world, node, "uncordon")
    (row,) = (await node.caller.ask(f"/nodes/{node.id}/desired"))["workers"]
    assert row["generation"] == 1
    task_id = await world.submit.submit()
    await node.beat(worker.word())
    assert worker.take() == []
    await worker.register(pid=4001)
    await worker.report(state="ready")
    assert worker.take_one()["task_id"] == task_id


async def test_an_order_on_its_way_to_its_worker_keeps_it_from_being_stopped(
    world: World,
) -> None:
    node, (worker,) = await node_with(world, "one")
    task_id = await world.submit.submit(run_after=1.0)
    reached, gate = world.store.hold("place_tasks")
    world.clock.step(2)
    world.manager.tasks.dispatch.kick()
    await reached.wait()
    await say(world, node, "drain")
    assert await wanted(node) == [worker.id]
    gate.set()
    await quiet()
    item = worker.take_one()
    await worker.finish(item)
    await step(world)
    assert await wanted(node) == []
    assert (await world.read.task(task_id))["attempt"] == 1


async def test_a_node_that_registers_while_drained_starts_nothing(
    world: World,
) -> None:
    node, (worker,) = await node_with(world, "one")
    await say(world, node, "drain", reason="update")
    told = await node.register(declared("one", "echo"), declared("two", "echo"))
    assert told["desired"]["workers"] == []
    await step(world)
    shown = await look(world, node)
    assert (shown["scheduling"], shown["workers"]) == ("drained", 2)
    # Resting is no failure, however long it takes.
    node.workers.clear()
    world.clock.step(15)
    await node.beat()
    await world.step(55, node)
    rows = (await world.read.ask("/workers"))["workers"]
    assert {row["state"] for row in rows} == {"stopped"}
    await say(world, node, "uncordon")
    assert len(await wanted(node)) == 2
    assert worker.id in await wanted(node)


async def test_a_hold_ends_by_itself_when_its_time_has_come(world: World) -> None:
    node, (worker,) = await node_with(world, "one")
    await say(world, node, "cordon", until=60)
    await world.step(59, node)
    await step(world)
    assert (await look(world, node))["scheduling"] == "cordoned"
    world.clock.step(1)
    await step(world)
    shown = await look(world, node)
    assert (shown["scheduling"], shown["holds"]) == ("open", [])
    assert "node_uncordoned" in await kinds(world)
    await world.submit.submit()
    assert worker.take_one()
    answer = await world.operate.post(f"/nodes/{node.id}/drain", {"until": -1})
    fault(answer, 422, "invalid_field")


async def test_its_owner_holds_a_node_as_long_as_he_uses_it(world: World) -> None:
    node, (worker,) = await node_with(world, "one")
    link = world.manager.nodes.get(node.id)
    link.owner_hold = Hold(HoldSource.OWNER, "a game", drain=True)
    await step(world)
    assert await wanted(node) == []
    await say(world, node, "uncordon")
    assert (await look(world, node))["scheduling"] == "draining"
    link.owner_hold = None
    await step(world)
    assert await wanted(node) == [worker.id]
    assert (await look(world, node))["scheduling"] == "open"


async def test_launches_go_elsewhere_or_are_refused(world: World) -> None:
    one = await world.node()
    two = await world.node()
    await say(world, one, "cordon", reason="cables")
    body = {"worker_class": "corral.worker.builtin:EchoWorker"}
    told = await world.operate.tell("/workers", body)
    assert told["workers"][0]["node_id"] == two.id
    answer = await world.operate.post("/workers", {**body, "node_id": one.id})
    assert "cables" in fault(answer, 409, "conflict")["message"]
    kind = {"worker_name": "mine", "worker_class": "pkg:Class"}
    await world.operate.post("/register_worker_type", kind)
    launch = {"node_url": one.id, "worker_type": "mine"}
    fault(await world.operate.post("/launch_worker", launch), 409, "conflict")
    await say(world, two, "cordon")
    fault(await world.operate.post("/workers", body), 409, "conflict")


async def launched(world: World, **body: Any) -> str:
    said = {"worker_class": "corral.worker.builtin:EchoWorker", **body}
    told = await world.operate.tell("/workers", said)
    return str(told["workers"][0]["worker_id"])


async def test_workers_launched_on_no_node_in_particular_move(world: World) -> None:
    one = await world.node(declared("own", "echo"))
    free = await launched(world)
    pinned = await launched(world, node_id=one.id)
    worker = FakeWorker(one, free)
    await worker.start()
    task_id = await world.submit.submit()
    item = worker.take_one()
    two = await world.node()
    other = await world.node()
    await say(world, other, "cordon")
    await say(world, one, "drain")
    assert await wanted(one) == [free]
    own = await world.submit.submit(only_on=free)
    await worker.finish(item)
    await step(world)
    assert await wanted(one) == []
    assert await wanted(two) == [free]
    there = FakeWorker(two, free)
    await there.start()
    assert there.take_one()["task_id"] == own
    assert (await world.read.task(task_id))["attempt"] == 1
    # What is left of it there is a stranger's.
    answer = await worker.report(state="ready")
    fault(answer, 403, "forbidden")
    await say(world, one, "uncordon")
    assert sorted(await wanted(one)) == sorted([one.workers["own"].id, pinned])
    assert "worker_moved" in await kinds(world)


async def test_a_worker_moves_later_when_there_is_no_place_for_it_yet(
    world: World,
) -> None:
    one = await world.node()
    free = await launched(world)
    await say(world, one, "drain")
    assert await wanted(one) == []
    two = await world.node()
    await step(world)
    assert await wanted(two) == [free]


@pytest.mark.parametrize("verb", ["cordon", "drain", "uncordon"])
async def test_nodes_that_are_not_there_cannot_be_held(world: World, verb: str) -> None:
    answer = await world.operate.post(f"/nodes/n-none/{verb}")
    fault(answer, 404, "node_not_found")


async def test_a_window_holds_its_node_while_it_lasts(world: World) -> None:
    node, (worker,) = await node_with(world, "one")
    path = f"/nodes/{node.id}/windows"
    body = {"name": "patch", "starts_at": 100, "duration": 50, "reason": "kernel"}
    (made,) = (await world.operate.tell(path, body))["windows"]
    assert made["next_at"] == "2026-01-01T00:01:40Z"
    fault(await world.operate.post(path, body), 409, "conflict")
    await step(world)
    assert (await look(world, node))["scheduling"] == "open"
    world.clock.step(100)
    await step(world)
    shown = await look(world, node)
    assert shown["scheduling"] == "draining"
    assert shown["holds"][0]["until"] == "2026-01-01T00:02:30Z"
    assert await wanted(node) == []
    await node.beat()
    await step(world)
    world.clock.step(50)
    await step(world)
    shown = await look(world, node)
    assert (shown["scheduling"], shown["windows"]) == ("open", [])
    assert await wanted(node) == [worker.id]
    seen = await kinds(world)
    assert seen.index("window_began") < seen.index("window_ended")


async def test_a_window_that_is_removed_ends(world: World) -> None:
    node = await world.node()
    path = f"/nodes/{node.id}/windows"
    body = {"name": "w", "cron": "* * * * *", "duration": 90, "drain": False}
    await world.operate.tell(path, body)
    world.clock.step(60)
    await step(world)
    assert (await look(world, node))["scheduling"] == "cordoned"
    assert len((await world.read.ask(path))["windows"]) == 1
    fault(await world.operate.delete(f"{path}/other"), 404, "not_found")
    assert (await world.operate.delete(f"{path}/w")).is_success
    await step(world)
    assert (await look(world, node))["scheduling"] == "open"
