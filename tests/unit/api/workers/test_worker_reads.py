"""What a gateway in front of the cluster reads: keys, numbers, pages."""

from __future__ import annotations

import pytest

from tests.unit.api.world import World, declared, fault

SAMPLE = {
    "cpu_count": 8,
    "cpu_percent": 50.0,
    "memory_total_mb": 4096.0,
    "memory_used_mb": 1024.0,
    "disk_total_gb": 100.0,
    "disk_used_gb": 10.0,
    "network_rx_bytes": 1,
    "network_tx_bytes": 2,
    "load_1m": 0.1,
    "load_5m": 0.1,
    "load_15m": 0.1,
}


@pytest.mark.spec("A26")
async def test_workers_are_listed_by_status_in_pages(world: World) -> None:
    node = await world.node(*(declared(f"w{number}") for number in range(5)))
    for name in ("w0", "w1", "w2"):
        await node.workers[name].start()
    ready = [node.workers[name].id for name in ("w0", "w1", "w2")]
    told = await world.read.ask("/workers", status="online", limit=2)
    assert [w["worker_id"] for w in told["workers"]] == ready[:2]
    assert (told["total"], told["online"], told["offline"]) == (5, 3, 2)
    told = await world.read.ask("/workers", status="online", limit=2, offset=2)
    assert [w["worker_id"] for w in told["workers"]] == ready[2:]
    assert (await world.read.ask("/workers", offset=9))["workers"] == []
    assert len((await world.read.ask("/workers"))["workers"]) == 5
    assert (await world.read.ask("/workers", gpu_type="RX 6800"))["workers"] == []
    for query in ({"limit": 0}, {"offset": -1}, {"limit": "x"}, {"status": "tired"}):
        fault(await world.read.get("/workers", **query), 422, "invalid_field")


async def test_workers_of_one_node_are_listed_alone(world: World) -> None:
    first = await world.node(declared("a"), declared("b"))
    second = await world.node(declared("c"))
    told = await world.read.ask("/workers", node_id=first.id)
    assert [worker["name"] for worker in told["workers"]] == ["a", "b"]
    assert (told["total"], told["online"], told["offline"]) == (3, 0, 3)
    told = await world.read.ask("/workers", node_id=second.id, status="starting")
    assert [worker["name"] for worker in told["workers"]] == ["c"]
    assert (await world.read.ask("/workers", node_id="n-none"))["workers"] == []


@pytest.mark.spec("A26")
async def test_one_worker_shows_its_machine_its_history_and_its_figures(
    world: World,
) -> None:
    worker = await world.worker()
    for ends_well in (True, True, True, False):
        await world.submit.submit()
        item = worker.take_one()
        await (worker.finish(item) if ends_well else worker.fail(item))
    await worker.node.beat(worker.word(), sample=SAMPLE)
    told = await world.read.ask(f"/workers/{worker.id}")
    assert told["performance_score"] == 0.75
    machine = told["system_info"]
    assert (machine["ram_total"], machine["ram_used"]) == (4096.0, 1024.0)
    assert told["task_history"] == {
        "completed_today": 3,
        "completed": 3,
        "failed": 1,
        "average_duration": 0.5,
        "success_rate": 0.75,
    }
    assert told["metrics"] == {
        "tasks_per_hour": 3.0,
        "average_response_time": 0.5,
        "error_rate": 0.25,
    }
    world.clock.step(86_400)
    told = await world.read.ask(f"/workers/{worker.id}")
    assert told["task_history"]["completed_today"] == 0
    assert told["metrics"]["tasks_per_hour"] == 3 / 24


@pytest.mark.spec("A26")
async def test_the_cluster_s_figures_are_numbers_under_the_documented_names(
    world: World,
) -> None:
    worker = await world.worker()
    await worker.node.beat(worker.word(), sample=SAMPLE)
    world.clock.step(60)
    told = await world.read.ask("/cluster/status")
    figures = {
        "total_workers": 1,
        "active_workers": 1,
        "queued_tasks": 0,
        "running_tasks": 0,
        "total_memory": 4096.0,
        "available_memory": 3072.0,
        "uptime": 60.0,
    }
    assert {name: told[name] for name in figures} == figures
    assert (told["cluster_id"], told["status"]) == ("corral", "operational")
    assert told["gpu_utilization"] == 0.0
    health = await world.nobody.ask("/health")
    assert (health["status"], set(health)) == (
        "healthy",
        {"status", "timestamp", "version"},
    )
