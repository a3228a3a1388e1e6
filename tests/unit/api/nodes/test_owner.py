"""A node its owner uses is given nothing new, and is told of."""

from __future__ import annotations

import pytest

from tests.unit.api.world import FakeWorker, Json, World, quiet

GAME = "game holds 4000 MB of a card"


async def say(world: World, worker: FakeWorker, owner: Json | None) -> None:
    await worker.node.beat(worker.word(), owner=owner)
    await world.manager.nodes.holds.step()
    await quiet()


async def kinds(world: World) -> list[str]:
    events = (await world.read.ask("/events"))["events"]
    return [e["event_type"] for e in events if e["event_type"].startswith("owner")]


@pytest.mark.parametrize("drain", [False, True])
async def test_while_the_owner_uses_a_node_work_waits_and_says_why(
    world: World, drain: bool
) -> None:
    worker = await world.worker("echo")
    owner = {"active": True, "reason": GAME, "drain": drain}
    await say(world, worker, owner)
    task_id = await world.submit.submit()
    await quiet()
    assert worker.take() == []
    waiting = (await world.read.task(task_id))["waiting"]
    assert waiting["reason"] == "node_held"
    assert GAME in waiting["message"]
    link = world.manager.nodes.get(worker.node.id)
    assert (link.is_draining, len(link.holds)) == (drain, 1)
    told = await world.manager.nodes.registry.desired(worker.node.id, -1, 0.0)
    assert len(told[1]) == (0 if drain else 1), "idle workers are stopped by a drain"
    await say(world, worker, owner | {"reason": "another game"})
    assert await kinds(world) == ["owner_active"]


async def test_work_comes_again_when_the_owner_is_gone(world: World) -> None:
    worker = await world.worker("echo")
    await say(world, worker, {"active": True, "reason": GAME})
    task_id = await world.submit.submit()
    await say(world, worker, {"active": False})
    assert worker.take_one()["task_id"] == task_id
    assert sorted(await kinds(world)) == ["owner_active", "owner_gone"]


async def test_an_agent_without_the_policy_any_more_ends_it(world: World) -> None:
    worker = await world.worker("echo")
    await say(world, worker, {"active": True, "reason": "a\x00b"})
    await say(world, worker, None)
    assert world.manager.nodes.get(worker.node.id).holds == ()
