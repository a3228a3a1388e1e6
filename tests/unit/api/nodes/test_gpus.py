"""What nodes say of their GPUs, as users see it: nodes, the cluster, events."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.api.world import Json, World, declared, fault


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


QUARANTINE = {
    "reason": "Xid 79",
    "since": "2026-01-01T00:00:00.125+00:00",
    "until": "2026-01-01T00:05:00+00:00",
}


def sick(gpu_id: str = "GPU-1") -> Json:
    held = {"health": "quarantined", "quarantine": QUARANTINE, "is_offered": False}
    return card(gpu_id, errors={"xid_79": 3}, **held)


async def test_quarantine_and_recovery_become_events(world: World) -> None:
    node = await world.node()
    await node.beat(gpus=[card()])
    await node.beat(gpus=[sick()])
    await node.beat(gpus=[card()])
    back, held = sorted(await gpu_events(world), reverse=True)
    assert held[:2] == ("gpu_quarantined", "warning")
    assert held[2].endswith("has put a GPU in quarantine: NVIDIA H200 (GPU-1), Xid 79")
    assert back[:2] == ("gpu_recovered", "info")


async def test_a_release_is_desired_until_the_node_has_done_it(world: World) -> None:
    node = await world.node()
    await node.beat(gpus=[sick(), card("GPU-2")])
    released = await world.operate.tell(f"/nodes/{node.id}/gpus/GPU-1/release")
    assert released["quarantine"]["reason"] == "Xid 79"
    wanted = [{"gpu_id": "GPU-1", "since": "2026-01-01T00:00:00.125000Z"}]
    told = await node.caller.ask(f"/nodes/{node.id}/desired")
    assert told["gpu_releases"] == wanted
    await node.beat(gpus=[sick(), card("GPU-2")])
    assert (await node.register())["desired"]["gpu_releases"] == wanted
    await node.beat(gpus=[card(), card("GPU-2")])
    told = await node.caller.ask(f"/nodes/{node.id}/desired")
    assert told["gpu_releases"] == []


async def test_only_a_card_in_quarantine_can_be_released(world: World) -> None:
    node = await world.node()
    await node.beat(gpus=[card(index=0)])
    url = f"/nodes/{node.id}/gpus"
    fault(await world.operate.post(f"{url}/gpu:0/release"), 409, "conflict")
    fault(await world.operate.post(f"{url}/GPU-9/release"), 404, "not_found")
    fault(await world.operate.post("/nodes/x/gpus/g/release"), 404, "node_not_found")


@pytest.mark.spec("B23")
async def test_a_worker_shows_the_cards_it_has_and_is_found_by_them(
    world: World,
) -> None:
    node = await world.node({**declared("one"), "gpus": "1"}, declared("two"))
    (wanted, plain) = (await node.caller.ask(f"/nodes/{node.id}/desired"))["workers"]
    assert (wanted["gpus"], plain["gpus"]) == ("1", "")
    bound = await node.workers["one"].start()
    other = await node.workers["two"].start()
    told = card(temperature_c=41.0, utilization_percent=7.0)
    await node.beat(bound.word(facts={"gpus": ["GPU-1"]}), other.word(), gpus=[told])
    (row,) = (await world.read.ask("/workers", gpu_type="h200"))["workers"]
    assert row["worker_id"] == bound.id
    assert row["gpu_info"] == [
        {
            "id": "GPU-1",
            "model": "NVIDIA H200",
            "name": "NVIDIA H200",
            "vendor": "nvidia",
            "memory_total": 1000.0,
            "memory_used": 400.0,
            "temperature": 41.0,
            "utilization": 7.0,
            "driver_version": "580.1",
            "is_simulated": False,
        }
    ]
    assert (await world.read.ask(f"/workers/{other.id}"))["gpu_info"] == []


async def test_tasks_of_a_worker_taken_from_its_card_go_back_uncharged(
    world: World,
) -> None:
    node = await world.node({**declared("one"), "gpus": "1"})
    worker = await node.workers["one"].start()
    await node.beat(worker.word(facts={"gpus": ["GPU-1"]}))
    task_id = await world.submit.submit()
    item = worker.take_one()
    await worker.begin(item)
    await node.beat(worker.word(item, facts={"gpus": ["GPU-1"]}))
    await node.beat(worker.word(state="error", pid=None, facts={"gpus": []}))
    task = await world.read.task(task_id)
    assert (task["state"], task["losses"], task["tries"]) == ("queued", 0, 0)


async def test_the_cluster_tells_what_memory_may_be_given_out(world: World) -> None:
    node = await world.node()
    unknown = card("GPU-3", memory_used_mb=None, memory_offered_mb=None)
    offered = [card("GPU-1", memory_offered_mb=500.0), unknown]
    await node.beat(gpus=[*offered, sick("GPU-2")])
    status = await world.read.ask("/cluster/status")
    assert status["gpu_memory_total_mb"] == 2000.0
    assert status["gpu_memory_offered_mb"] == 500.0


@pytest.mark.parametrize("gpus", ["all", "-1", -1, "gpu:0,gpu:0"])
async def test_unclear_wishes_for_cards_are_refused(world: World, gpus: object) -> None:
    await world.node()
    asked = {"worker_class": "corral:EchoWorker", "gpus": gpus}
    fault(await world.operate.post("/workers", asked), 422, "invalid_field")


@pytest.mark.parametrize(("gpus", "wanted"), [(2, "2"), (0, ""), ("gpu:1", "gpu:1")])
async def test_launched_workers_carry_their_wish(
    world: World, gpus: object, wanted: str
) -> None:
    node = await world.node()
    asked = {"worker_class": "corral:EchoWorker", "gpus": gpus}
    await world.operate.tell("/workers", asked)
    (row,) = (await node.caller.ask(f"/nodes/{node.id}/desired"))["workers"]
    assert row["gpus"] == wanted
