"""What nodes say of their GPUs, as users see it: nodes, the cluster, events."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.api.world import Json, World


def card(gpu_id: str = "GPU-1", **more: Any) -> Json:
    base = {"id": gpu_id, "vendor": "nvidia", "name": "NVIDIA H200", "is_offered": True}
    memory = {"memory_total_mb": 1000.0, "memory_used_mb": 400.0}
    return {**base, **memory, "memory_free_mb": 600.0, "driver": "580.1", **more}


async def gpu_events(world: World) -> list[tuple[str, str, str]]:
    rows = (await world.read.ask("/events"))["events"]
    return [
        (row["event_type"], row["severity"], row["title"])
        for row in rows
        if row["event_type"].startswith("gpu_")
    ]


async def test_a_node_shows_its_cards_with_the_processes_on_them(world: World) -> None:
    node = await world.node()
    assert (await world.read.ask(f"/nodes/{node.id}"))["gpus"] == []
    row = {"pid": 4711, "name": "python", "memory_mb": 400.0, "is_ours": False}
    await node.beat(gpus=[card(processes=[row])])
    await node.beat()
    (shown,) = (await world.read.ask(f"/nodes/{node.id}"))["gpus"]
    assert (shown["id"], shown["memory_free_mb"]) == ("GPU-1", 600.0)
    assert shown["processes"] == [row]
    assert shown["is_simulated"] is False
    listed = (await world.read.ask("/nodes"))["nodes"]
    assert [n["gpus"] for n in listed if n["node_id"] == node.id] == [[shown]]


async def test_hot_removal_becomes_an_event(world: World) -> None:
    node = await world.node()
    await node.beat(gpus=[card("GPU-1"), card("GPU-2")])
    assert await gpu_events(world) == []
    await node.beat(gpus=[card("GPU-2")])
    ((kind, severity, title),) = await gpu_events(world)
    assert (kind, severity) == ("gpu_removed", "warning")
    assert title.endswith("has lost a GPU: NVIDIA H200 (GPU-1)")


async def test_a_new_driver_and_a_strange_name_become_events(world: World) -> None:
    node = await world.node()
    await node.beat(gpus=[card()])
    await node.beat(gpus=[card(driver="590.2"), card("GPU-2", name="odd\u0000one")])
    changed, added = sorted(await gpu_events(world), reverse=True)
    assert changed[0] == "gpu_driver_changed"
    assert changed[2].endswith("580.1 is now 590.2")
    assert "odd one (GPU-2)" in added[2]


async def test_an_agent_that_comes_back_is_compared_with_its_former_self(
    world: World,
) -> None:
    node = await world.node()
    await node.beat(gpus=[card()])
    await node.register()
    await node.beat(gpus=[])
    assert [kind for kind, _, _ in await gpu_events(world)] == ["gpu_removed"]


async def test_the_cluster_tells_the_mean_use_of_offered_cards(world: World) -> None:
    node = await world.node()
    assert (await world.read.ask("/cluster/status"))["gpu_utilization"] == 0.0
    await node.beat(
        gpus=[
            card("GPU-1", utilization_percent=20.0),
            card("GPU-2", utilization_percent=60.0),
            card("GPU-3", utilization_percent=None),
            card("GPU-4", utilization_percent=99.0, is_offered=False),
        ]
    )
    assert (await world.read.ask("/cluster/status"))["gpu_utilization"] == 40.0


@pytest.mark.parametrize("gpus", [{}, [{"id": "x"}], [1], "all"])
async def test_gpus_of_another_shape_are_refused(world: World, gpus: object) -> None:
    node = await world.node()
    answer = await node.try_beat(gpus=gpus)
    assert answer.status_code in (400, 422)
