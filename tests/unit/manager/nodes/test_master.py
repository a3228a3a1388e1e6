"""The manager's own machine is a node: one row, whoever speaks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from corral.core.nodes.node import MachineReading
from corral.manager.config import ManagerConfig
from corral.manager.nodes.master import MasterConfig
from tests.twins.store import MemoryStore
from tests.unit.api.world import (
    CONFIG,
    FakeNode,
    Json,
    StepClock,
    World,
    declared,
    fault,
    quiet,
    running,
    said,
)

HERE, ELSEWHERE = "a1b2c3d4e5f60718", "ffffffffffffffff"


def sample() -> dict[str, Any]:
    return {
        "cpu_count": 8,
        "cpu_percent": 12.5,
        "memory_total_mb": 1000.0,
        "memory_used_mb": 250.0,
        "disk_total_gb": 100.0,
        "disk_used_gb": 40.0,
        "network_rx_bytes": 1,
        "network_tx_bytes": 2,
        "load_1m": 0.5,
        "load_5m": 0.4,
        "load_15m": 0.3,
    }


def reading() -> MachineReading:
    return MachineReading(**sample())


def config(*, expects_agent: bool = False) -> ManagerConfig:
    master = MasterConfig(HERE, "boss", reading, "0.1.0", expects_agent=expects_agent)
    return replace(CONFIG, master=master)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running(config()) as made:
        await quiet()
        yield made


async def nodes(world: World) -> list[Json]:
    found: list[Json] = (await world.read.ask("/nodes"))["nodes"]
    return found


async def step(world: World, seconds: float = 0.0, *keep: FakeNode) -> None:
    await world.step(seconds, *keep)
    await world.manager.nodes.master.step()
    await world.manager.nodes.readings.step()


async def agent(world: World, machine: str, node_type: str = "worker") -> FakeNode:
    node = await world.node()
    await register(node, machine, node_type)
    return node


async def register(node: FakeNode, machine: str, node_type: str = "worker") -> None:
    body = {
        "hostname": "host",
        "machine": machine,
        "node_type": node_type,
        "workers": [declared("one")],
    }
    told = await node.caller.tell(f"/nodes/{node.id}/register", body)
    node.epoch = told["epoch"]


@pytest.mark.spec("A4")
async def test_a_manager_alone_registers_its_machine_as_master_and_measures_it(
    world: World,
) -> None:
    (row,) = await nodes(world)
    assert (row["node_type"], row["status"], row["hostname"]) == (
        "master",
        "online",
        "boss",
    )
    assert (row["cpu_percent"], row["memory_percent"], row["disk_percent"]) == (
        12.5,
        25.0,
        40.0,
    )
    for _ in range(4):
        await step(world, 30)
    kept = await world.manager.ctx.store.metrics.samples(
        row["node_id"], world.manager.started_at
    )
    assert len(kept) >= 4


async def test_its_row_survives_restarts_and_is_never_lost() -> None:
    inner, clock = MemoryStore(), StepClock()
    ids = []
    for _ in range(3):
        async with running(config(), inner=inner, clock=clock) as world:
            await quiet()
            for _ in range(5):
                await step(world, 20)
            (row,) = await nodes(world)
            assert row["status"] == "online"
            ids.append(row["node_id"])
        clock.step(3600)
    assert len(set(ids)) == 1


async def test_it_does_not_count_when_most_nodes_fall_silent(world: World) -> None:
    for _ in range(3):
        await agent(world, ELSEWHERE)
    await step(world, 25)
    found = [row["status"] for row in await nodes(world)]
    assert sorted(found) == ["offline"] * 3 + ["online"], "three are no mass"


async def test_it_runs_nothing_and_cannot_be_cordoned(world: World) -> None:
    (row,) = await nodes(world)
    body = {"worker_class": "corral.worker.builtin:EchoWorker"}
    fault(await world.operate.post("/workers", body), 409, "conflict")
    body["node_id"] = row["node_id"]
    error = fault(await world.operate.post("/workers", body), 409, "conflict")
    assert "corral join" in error["message"]
    answer = await world.operate.post(f"/nodes/{row['node_id']}/cordon")
    fault(answer, 409, "conflict")
    told = await world.read.ask("/cluster/status")
    assert (told["total_nodes"], told["status"]) == (0, "operational")


async def test_an_agent_of_the_same_machine_takes_the_role_over(world: World) -> None:
    stranger = await agent(world, ELSEWHERE)
    local = await agent(world, HERE)
    await step(world)
    rows = {row["node_id"]: row["node_type"] for row in await nodes(world)}
    assert rows == {stranger.id: "worker", local.id: "master"}
    second = await agent(world, HERE)
    await step(world)
    rows = {row["node_id"]: row["node_type"] for row in await nodes(world)}
    assert rows[second.id] == "worker", "one row a machine"


async def test_the_agent_of_corral_up_comes_first(world: World) -> None:
    claims = await agent(world, ELSEWHERE, "master")
    first = await agent(world, HERE)
    ours = await agent(world, HERE, "master")
    await step(world)
    rows = {row["node_id"]: row["node_type"] for row in await nodes(world)}
    assert rows[claims.id] == "worker", "saying so is not enough"
    assert rows[ours.id] == "master"
    assert first.id in rows


async def test_when_the_agent_is_lost_the_manager_speaks_for_its_machine_again(
    world: World,
) -> None:
    local = await agent(world, HERE)
    await step(world)
    await step(world, 25)
    rows = {row["node_id"]: row for row in await nodes(world)}
    assert rows.pop(local.id)["node_type"] == "worker"
    ((_, own),) = rows.items()
    assert (own["node_type"], own["status"]) == ("master", "online")
    await register(local, HERE)
    await step(world)
    (row,) = await nodes(world)
    assert (row["node_id"], row["node_type"]) == (local.id, "master")


async def test_with_an_agent_on_its_way_there_is_no_row_before_it() -> None:
    inner, clock = MemoryStore(), StepClock()
    async with running(config(expects_agent=True), inner=inner, clock=clock) as world:
        await quiet()
        await step(world, 10)
        assert await nodes(world) == []
        local = await agent(world, HERE, "master")
        await step(world, 25)
        (row,) = await nodes(world)
        assert (row["node_type"], row["status"]) == ("master", "offline")
        said(await world.read.get(f"/nodes/{local.id}"))
