"""Nodes that go: asked to leave, long lost, and back again."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.twins.engine import InlineDispatcher
from tests.twins.store import MemoryStore
from tests.unit.api.world import (
    FakeNode,
    StepClock,
    World,
    declared,
    fault,
    quiet,
    running,
)

DAY_S = 86_400.0
Json = dict[str, Any]


async def desired(node: FakeNode) -> Json:
    return await node.caller.ask(f"/nodes/{node.id}/desired")


async def status(world: World, node: FakeNode) -> str:
    return str((await world.read.ask(f"/nodes/{node.id}"))["status"])


async def kinds(world: World) -> list[str]:
    told = await world.read.ask("/events", limit=1000)
    return [event["event_type"] for event in told["events"]]


async def test_a_node_leaves_when_its_agent_has_stopped(world: World) -> None:
    worker = await world.worker("echo")
    node = worker.node
    told = (await world.operate.delete(f"/nodes/{node.id}")).json()
    assert told["status"] == "leaving"
    await world.manager.nodes.leave.step()
    assert await status(world, node) == "online"
    told = await desired(node)
    assert (told["leave"], told["forget"]) == (True, True)
    await node.beat()
    await world.manager.nodes.leave.step()
    assert await status(world, node) == "left"
    assert (await world.read.ask("/workers"))["workers"] == []
    answer = await node.try_beat()
    fault(answer, 401, "unauthenticated")
    assert (await kinds(world))[-1] == "node_left"


async def test_a_node_that_runs_tasks_leaves_only_by_force(world: World) -> None:
    worker = await world.worker("echo")
    other = await world.worker("other")
    task_id = await world.submit.submit()
    item = worker.take_one()
    await worker.begin(item)
    path = f"/nodes/{worker.node.id}"
    error = fault(await world.operate.delete(path), 409, "conflict")
    assert error["details"]["running_tasks"] == 1
    told = (await world.operate.delete(f"{path}?force=true")).json()
    assert told["status"] == "left"
    task = await world.read.task(task_id)
    assert (task["status"], task["losses"]) == ("queued", 0)
    assert other.node.id != worker.node.id


async def test_nothing_new_comes_to_a_node_that_leaves(world: World) -> None:
    worker = await world.worker("echo")
    await world.operate.delete(f"/nodes/{worker.node.id}")
    await world.manager.nodes.holds.step()
    task_id = await world.submit.submit()
    assert worker.take() == []
    assert (await world.read.task(task_id))["waiting"]["reason"] == "node_held"


async def test_a_node_that_is_not_up_is_gone_at_once(world: World) -> None:
    worker = await world.worker("echo")
    await world.step(30)
    assert await status(world, worker.node) == "offline"
    told = (await world.operate.delete(f"/nodes/{worker.node.id}")).json()
    assert told["status"] == "left"


async def test_an_agent_that_does_not_stop_is_not_waited_for(world: World) -> None:
    worker = await world.worker("echo")
    await world.operate.delete(f"/nodes/{worker.node.id}")
    await desired(worker.node)
    for _ in range(7):
        world.clock.step(9)
        await worker.node.try_beat(worker.word())
        await world.manager.nodes.leave.step()
    assert await status(world, worker.node) == "left"


async def test_a_machine_takes_its_own_leave_and_no_others(world: World) -> None:
    node, other = await world.node(), await world.node()
    answer = await node.caller.delete(f"/nodes/{other.id}")
    fault(answer, 403, "forbidden")
    assert (await node.caller.delete(f"/nodes/{node.id}")).is_success
    await desired(node)
    await world.manager.nodes.leave.step()
    assert await status(world, node) == "left"
    assert await status(world, other) == "online"


async def test_an_agent_that_starts_anew_while_leaving_is_turned_away(
    world: World,
) -> None:
    node = await world.node(declared("one"))
    await world.operate.delete(f"/nodes/{node.id}")
    answer = await node.caller.post(f"/nodes/{node.id}/register", {"hostname": "h"})
    assert fault(answer, 401, "unauthenticated")["details"] == {"is_removed": True}
    await world.manager.nodes.leave.step()
    assert await status(world, node) == "left"


@pytest.mark.spec("A6")
async def test_a_node_that_is_long_lost_is_forgotten(world: World) -> None:
    worker = await world.worker("echo")
    stays = await world.worker("echo")
    await world.step(30, stays.node)
    await world.manager.nodes.leave.step()
    assert await status(world, worker.node) == "offline"
    world.clock.step(7 * DAY_S - 40)
    await stays.node.beat(stays.word())
    await world.manager.nodes.leave.step()
    assert await status(world, worker.node) == "offline"
    world.clock.step(40)
    await stays.node.beat(stays.word())
    await world.manager.nodes.leave.step()
    assert await status(world, worker.node) == "left"
    assert await status(world, stays.node) == "online"
    rows = (await world.read.ask("/workers"))["workers"]
    assert [row["worker_id"] for row in rows] == [stays.id]
    assert "node_forgotten" in await kinds(world)


async def test_a_forgotten_node_that_comes_back_takes_up_its_identity(
    world: World,
) -> None:
    worker = await world.worker("echo")
    node = worker.node
    await world.operate.send("PATCH", f"/nodes/{node.id}", json={"labels": {"a": "b"}})
    await world.step(30)
    world.clock.step(8 * DAY_S)
    await world.manager.nodes.leave.step()
    fault(await node.try_beat(worker.word()), 409, "conflict")
    told = await node.register(declared("one", "echo"))
    assert len(told["desired"]["workers"]) == 1
    shown = await world.read.ask(f"/nodes/{node.id}")
    assert (shown["status"], shown["labels"]) == ("online", {"a": "b"})
    task_id = await world.submit.submit()
    back = await node.workers["one"].start()
    assert back.take_one()["task_id"] == task_id


async def test_a_node_back_before_that_keeps_what_it_had(world: World) -> None:
    worker = await world.worker("echo")
    node = worker.node
    await world.operate.tell(f"/nodes/{node.id}/cordon", {"reason": "cables"})
    await world.step(3600)
    assert await status(world, node) == "offline"
    told = await node.register(declared("one", "echo"))
    assert [row["worker_id"] for row in told["desired"]["workers"]] == [worker.id]
    shown = await world.read.ask(f"/nodes/{node.id}")
    assert (shown["status"], shown["scheduling"]) == ("online", "cordoned")


async def test_a_node_that_joined_and_never_came_is_forgotten_too(
    world: World,
) -> None:
    node = await world.manager.nodes.registry.join("shy")
    world.clock.step(8 * DAY_S)
    await world.manager.nodes.leave.step()
    assert (await world.read.ask(f"/nodes/{node.id}"))["status"] == "left"


async def test_a_manager_that_starts_again_holds_what_was_held() -> None:
    store, clock, engine = MemoryStore(), StepClock(), InlineDispatcher()
    async with running(inner=store, clock=clock, engine=engine) as world:
        worker = await world.worker("echo")
        node_id = worker.node.id
        change = {"labels": {"rack": "a"}, "taints": {"spot": ""}}
        await world.operate.send("PATCH", f"/nodes/{node_id}", json=change)
        await world.operate.tell(f"/nodes/{node_id}/drain", {"reason": "update"})
    async with AsyncExitStack() as stack:
        made = running(inner=store, clock=clock, engine=engine)
        world = await stack.enter_async_context(made)
        shown = await world.read.ask(f"/nodes/{node_id}")
        assert shown["scheduling"] == "draining"
        assert shown["holds"][0]["reason"] == "update"
        assert (shown["labels"], shown["taints"]) == ({"rack": "a"}, ["spot"])
        key = worker.node.caller.headers["Authorization"].removeprefix("Bearer ")
        told = await world.http.get(
            f"/nodes/{node_id}/desired", headers={"Authorization": f"Bearer {key}"}
        )
        assert told.json()["workers"] == []
        task_id = await world.submit.submit(tolerates=["spot"])
        await quiet()
        assert (await world.read.task(task_id))["waiting"]["reason"] == "node_held"
