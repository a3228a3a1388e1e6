"""The cluster as a whole: figures, nodes, workers, job types."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.api.world import World, declared, fault, quiet


@pytest.mark.spec("C3")
async def test_the_cluster_is_told_in_numbers(world: World) -> None:
    worker = await world.worker("echo")
    node = worker.node
    await world.submit.submit()
    await world.submit.submit()
    await worker.finish(worker.take_one())
    sample = {
        "cpu_count": 8,
        "cpu_percent": 12.5,
        "memory_total_mb": 1000,
        "memory_used_mb": 250,
        "disk_total_gb": 100,
        "disk_used_gb": 10,
        "network_rx_bytes": 1,
        "network_tx_bytes": 2,
        "load_1m": 0.5,
        "load_5m": 0.4,
        "load_15m": 0.3,
    }
    await node.beat(worker.word(), sample=sample)
    told = await world.read.ask("/cluster/status")
    assert told["status"] == "operational"
    assert (told["total_workers"], told["active_workers"]) == (1, 1)
    assert (told["total_nodes"], told["online_nodes"]) == (1, 1)
    assert (told["queued_tasks"], told["running_tasks"]) == (0, 1)
    assert told["tasks"] == {"completed": 1, "assigned": 1}
    assert (told["total_memory_mb"], told["available_memory_mb"]) == (1000, 750)
    await world.step(30)
    told = await world.read.ask("/cluster/status")
    assert (told["status"], told["online_nodes"]) == ("degraded", 0)
    assert told["queued_tasks"] == 1


@pytest.mark.spec("A26")
async def test_a_gateway_gets_its_four_questions_answered(world: World) -> None:
    worker = await world.worker("echo")
    assert (await world.nobody.ask("/health"))["status"] == "healthy"
    assert (await world.read.ask("/cluster/status"))["active_workers"] == 1
    assert (await world.read.ask("/workers"))["online"] == 1
    told = await world.read.ask(f"/workers/{worker.id}")
    assert (told["worker_id"], told["status"]) == (worker.id, "online")


@pytest.mark.spec("A24")
async def test_a_node_is_shown_live(world: World) -> None:
    worker = await world.worker("echo")
    sample = {
        "cpu_count": 8,
        "cpu_percent": 12.5,
        "memory_total_mb": 1000,
        "memory_used_mb": 250,
        "disk_total_gb": 0,
        "disk_used_gb": 0,
        "network_rx_bytes": 1,
        "network_tx_bytes": 2,
        "load_1m": 0.5,
        "load_5m": 0.4,
        "load_15m": 0.3,
    }
    await worker.node.beat(worker.word(), sample={**sample, "disk_total_gb": 100})
    node = await world.read.ask(f"/nodes/{worker.node.id}")
    assert (node["node_type"], node["status"]) == ("worker", "online")
    assert (node["cpu_percent"], node["memory_percent"]) == (12.5, 25.0)
    assert node["disk_percent"] == 0.0
    assert node["last_heartbeat"] == "2026-01-01T00:00:00Z"
    assert node["workers"] == 1
    await worker.node.beat(worker.word(), sample={**sample, "memory_total_mb": 0})
    node = await world.read.ask(f"/nodes/{worker.node.id}")
    assert (node["disk_percent"], node["memory_percent"]) == (None, None)


@pytest.mark.spec("C4")
async def test_workers_are_listed_shown_launched_and_stopped(world: World) -> None:
    node = await world.node(declared("one", "echo"))
    (listed,) = (await world.read.ask("/workers"))["workers"]
    assert listed["name"] == "one"
    shown = await world.read.ask(f"/workers/{listed['worker_id']}")
    assert shown.items() >= listed.items()
    body = {"worker_class": "mine:ResizeWorker", "count": 2, "name": "r"}
    answer = await world.operate.post("/workers", body)
    assert answer.status_code == 201
    launched = answer.json()["workers"]
    assert {w["job_types"][0] for w in launched} == {"resize"}
    desired = await node.caller.ask(f"/nodes/{node.id}/desired")
    assert len(desired["workers"]) == 3
    fault(await world.operate.post("/workers", body), 409, "conflict")
    first = launched[0]["worker_id"]
    await world.operate.delete(f"/workers/{first}")
    fault(await world.read.get(f"/workers/{first}"), 404, "worker_not_found")
    after = await node.caller.ask(f"/nodes/{node.id}/desired")
    assert len(after["workers"]) == 2
    assert after["version"] > desired["version"]


async def test_a_change_of_what_should_run_wakes_the_waiting_agent(
    world: World,
) -> None:
    node = await world.node()
    now = (await node.caller.ask(f"/nodes/{node.id}/desired"))["version"]
    path = f"/nodes/{node.id}/desired?since={now}&wait=30"
    poll = asyncio.create_task(node.caller.ask(path))
    await quiet()
    assert not poll.done()
    await world.operate.tell("/workers", {"worker_class": "a:B", "node_id": node.id})
    assert len((await poll)["workers"]) == 1


@pytest.mark.spec("C16")
async def test_a_worker_is_online_busy_error_or_offline(world: World) -> None:
    worker = await world.worker("echo")

    async def status() -> str:
        return str((await world.read.ask(f"/workers/{worker.id}"))["status"])

    assert await status() == "online"
    await worker.node.beat(worker.word(state="busy"))
    assert await status() == "busy"
    assert (await world.read.ask("/workers", status="busy"))["total"] == 1
    await worker.node.beat(worker.word(state="error", error="no such module"))
    assert await status() == "error"
    shown = await world.read.ask("/workers", status="error")
    assert shown["workers"][0]["error"] == "no such module"
    assert (shown["online"], shown["offline"]) == (0, 1)
    await worker.node.beat(worker.word(state="ready"))
    assert await status() == "online"
    await world.step(20)
    assert await status() == "offline"
    fault(await world.read.get("/workers?status=tired"), 422, "invalid_field")


async def test_a_worker_is_described_as_the_documents_have_it(world: World) -> None:
    worker = await world.worker("echo")
    await world.submit.submit()
    await worker.finish(worker.take_one())
    await world.submit.submit()
    await worker.fail(worker.take_one())
    told = await world.read.ask(f"/workers/{worker.id}")
    assert {
        "worker_id",
        "status",
        "gpu_info",
        "loaded_models",
        "memory_usage",
        "last_heartbeat",
        "performance_metrics",
    } <= set(told)
    assert told["performance_metrics"] == {
        "tasks_completed": 1,
        "tasks_failed": 1,
        "average_duration_s": 0.5,
        "error_rate": 0.5,
        "model_loads": 0,
        "model_load_s": 0.0,
        "speed": 1.0,
        "speed_runs": 0,
    }


async def test_job_types_are_listed_with_their_schemas(world: World) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number"}}}
    body = {"name": "resize", "input_schema": schema, "output_schema": None}
    answer = await world.operate.post("/job-types", body)
    assert answer.status_code == 201
    told = await world.read.ask("/job-types")
    assert told["job_types"] == [
        {
            "name": "resize",
            "target": "@orchestrator",
            "input_schema": schema,
            "output_schema": None,
            "queue_order": "priority",
            "waiting": 0,
            "paused": False,
            "batch_limit": None,
            "cache_ttl_s": None,
            "cache": None,
            "running": 0,
        }
    ]


async def test_progress_is_shown_while_a_task_runs(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    item = worker.take_one()
    await worker.begin(item)
    await worker.report(progress=[[task_id, 1, 0.25, "a quarter"]])
    task = await world.read.task(task_id)
    assert task["status"] == "running"
    assert task["progress"] == {"fraction": 0.25, "message": "a quarter"}
    await worker.finish(item)
    assert (await world.read.task(task_id))["progress"] is None
