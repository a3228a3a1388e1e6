"""Silence: when it costs a node its work, and when it is not believed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from corral.core.tasks.task import Overlap
from corral.manager.nodes.liveness import Liveness
from tests.twins.store import MemoryStore
from tests.unit.api.world import (
    CONFIG,
    FakeNode,
    FakeWorker,
    Json,
    StepClock,
    World,
    declared,
    quiet,
    running,
    said,
)

NEVER = str(Overlap.NEVER)
SPREAD_S = 2.0
"""Nodes do not beat at the same moment, but all within five seconds."""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running() as made:
        yield made


async def five(world: World) -> list[FakeNode]:
    nodes = [await world.node(declared("w", "echo")) for _ in range(5)]
    for node in nodes:
        await node.workers["w"].start()
    return nodes


def holdings(nodes: list[FakeNode]) -> dict[str, Json]:
    """What each node's worker took from its queue."""
    return {n.id: n.workers["w"].take_one() for n in nodes}


async def pass_time(
    world: World, seconds: float, beating: list[FakeNode], held: dict[str, Json]
) -> None:
    """Second by second, in which some go on beating."""
    for _ in range(int(seconds)):
        world.clock.step(1)
        for node in beating:
            worker = node.workers["w"]
            await node.beat(worker.word(held[node.id], state="busy"))
        await world.manager.nodes.watch.step()


async def kinds(world: World) -> list[str]:
    events = (await world.read.ask("/events", limit=1000))["events"]
    return [event["event_type"] for event in events]


async def statuses(world: World) -> set[str]:
    return {n["status"] for n in (await world.read.ask("/nodes"))["nodes"]}


async def test_a_mass_loss_reschedules_nothing_although_beats_do_not_come_together(
    world: World,
) -> None:
    nodes = await five(world)
    ids = [await world.submit.submit() for _ in nodes]
    held = holdings(nodes)
    gone, rest = nodes[:3], nodes[3:]
    for node in gone:
        world.clock.step(SPREAD_S)
        await node.beat(node.workers["w"].word(held[node.id], state="busy"))
    await pass_time(world, 60, rest, held)
    assert "offline" not in await statuses(world)
    assert (await kinds(world)).count("mass_loss") == 1
    # They come back one by one, a beat apart.
    for count in range(1, 4):
        await pass_time(world, 5, [*rest, *gone[:count]], held)
    await pass_time(world, 60, nodes, held)
    assert await statuses(world) == {"online"}
    for node in nodes:
        await node.workers["w"].finish(held[node.id], "done")
    tasks = [await world.read.task(id_) for id_ in ids]
    assert {(t["status"], t["attempt"]) for t in tasks} == {("completed", 1)}
    told = await kinds(world)
    assert (told.count("mass_loss"), told.count("mass_loss_over")) == (1, 1)
    assert "node_lost" not in told


async def test_who_stays_away_when_the_others_are_back_is_lost_after_a_fresh_grace(
    world: World,
) -> None:
    nodes = await five(world)
    for _ in nodes:
        await world.submit.submit()
    held = holdings(nodes)
    await pass_time(world, 40, nodes[3:], held)
    await pass_time(world, 15, nodes[1:], held)
    assert "offline" not in await statuses(world)
    await pass_time(world, 10, nodes[1:], held)
    assert (await world.read.ask(f"/nodes/{nodes[0].id}"))["status"] == "offline"
    task = await world.read.task(held[nodes[0].id]["task_id"])
    assert task["attempt"] == 2


@pytest.mark.parametrize(("share", "is_held"), [(0.5, True), (0.7, False)])
async def test_the_share_of_a_mass_loss_is_a_setting(
    share: float, is_held: bool
) -> None:
    config = replace(CONFIG, liveness=Liveness(mass_loss_share=share))
    async with running(config) as world:
        nodes = await five(world)
        await world.step(25, *nodes[3:])
        assert ("offline" not in await statuses(world)) == is_held


async def test_the_number_of_nodes_for_a_mass_loss_is_a_setting() -> None:
    config = replace(CONFIG, liveness=Liveness(mass_loss_nodes=6))
    async with running(config) as world:
        nodes = await five(world)
        await world.step(25, *nodes[3:])
        assert "offline" in await statuses(world)


async def test_a_lost_node_is_not_charged_to_the_tasks_that_ran_there(
    world: World,
) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    await worker.begin(worker.take_one())
    await world.step(20)
    task = await world.read.task(task_id)
    assert (task["status"], task["attempt"], task["losses"]) == ("queued", 2, 0)


async def test_a_suspect_node_gets_no_new_work_until_it_beats_again(
    world: World,
) -> None:
    worker = await world.worker("echo")
    await pass_time(world, 15, [], {})
    await world.manager.nodes.holds.step()
    task_id = await world.submit.submit()
    await quiet()
    assert worker.take() == []
    waiting = (await world.read.task(task_id))["waiting"]
    assert waiting["reason"] == "node_held"
    assert "heartbeats are late" in waiting["message"]
    await worker.node.beat(worker.word())
    await world.manager.nodes.holds.step()
    await quiet()
    assert worker.take_one()["task_id"] == task_id


# tasks that must not run twice at a time --------------------------------------


async def second(world: World) -> FakeWorker:
    node = await world.node(declared("two", "echo"))
    return await node.workers["two"].start()


async def test_a_task_that_must_not_overlap_waits_until_its_agent_has_killed_it(
    world: World,
) -> None:
    worker = await world.worker("echo")
    never = await world.submit.submit(overlap=NEVER)
    worker.take_one()
    other = await second(world)
    await world.step(20, other.node)
    assert (await world.read.ask(f"/nodes/{worker.node.id}"))["status"] == "offline"
    assert (await world.read.task(never))["attempt"] == 1
    await world.step(4, other.node)
    assert other.take() == []
    await world.step(1, other.node)
    assert (other.take_one()["task_id"], (await world.read.task(never))["attempt"]) == (
        never,
        2,
    )


async def test_that_time_is_a_setting_and_agents_are_told_theirs() -> None:
    limits = Liveness(no_overlap_kill_s=40.0, no_overlap_requeue_s=50.0)
    config = replace(CONFIG, liveness=limits, overrun_s=0.2)
    async with running(config) as world:
        worker = await world.worker("echo")
        told = await worker.node.register(declared("one", "echo"))
        assert told["limits"] == {
            "no_overlap_kill_s": 40.0,
            "overrun_s": 0.2,
            "model_load_s": 300.0,
        }
        worker = await worker.node.workers["one"].start()
        never = await world.submit.submit(overlap=NEVER)
        worker.take_one()
        await world.step(20)
        await world.step(29)
        assert (await world.read.task(never))["attempt"] == 1
        await world.step(1)
        assert (await world.read.task(never))["attempt"] == 2


async def test_a_manager_that_starts_meanwhile_keeps_waiting() -> None:
    inner, clock = MemoryStore(), StepClock()
    async with running(inner=inner, clock=clock) as world:
        worker = await world.worker("echo")
        never = await world.submit.submit(overlap=NEVER)
        worker.take_one()
        await world.step(20)
    async with running(inner=inner, clock=clock) as world:
        await world.step(24)
        assert (await world.read.task(never))["attempt"] == 1
        await world.step(1)
        assert (await world.read.task(never))["attempt"] == 2


async def test_cancelled_meanwhile_it_stays_cancelled(world: World) -> None:
    worker = await world.worker("echo")
    never = await world.submit.submit(overlap=NEVER)
    worker.take_one()
    await world.step(20)
    said(await world.submit.post(f"/tasks/{never}/cancel"))
    await world.step(10)
    assert await world.read.status(never) == "cancelled"
