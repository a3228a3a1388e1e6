"""A cluster to look at: three machines, one of them lost, told by a stand-in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.unit.client.stand_in import StandIn

NOW = datetime.now(UTC)
GB = 1024.0


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat()


def card(node: int, index: int, use: float, used_gb: float, **more: Any) -> Any:
    return {
        "id": f"GPU-{node}{index}",
        "index": index,
        "name": "NVIDIA H100",
        "memory_total_mb": 80 * GB,
        "memory_used_mb": used_gb * GB,
        "utilization_percent": use,
        "temperature_c": 40.0 + use / 3,
        "is_offered": True,
        **more,
    }


def node(number: int, cards: list[Any], **more: Any) -> dict[str, Any]:
    return {
        "node_id": f"n{number}",
        "hostname": f"gpu-{number}",
        "status": "online",
        "cpu_percent": 20.0 + 13 * number,
        "memory_percent": 31.0 + 9 * number,
        "disk_percent": 41.0,
        "last_heartbeat": ago(2),
        "gpus": cards,
        **more,
    }


def worker(name: str, node_id: str, job_type: str, **more: Any) -> dict[str, Any]:
    return {
        "worker_id": f"w-{name}",
        "name": name,
        "node_id": node_id,
        "status": "online",
        "job_types": [job_type],
        "current_tasks": 0,
        "performance_metrics": {"tasks_completed": 214, "tasks_failed": 0},
        **more,
    }


def task(number: int, kind: str, status: str, age_s: float, **more: Any) -> Any:
    return {
        "task_id": f"01a1e022-1944-7868-a856-5e87345{number:05d}",
        "task_type": kind,
        "status": status,
        "created_at": ago(age_s),
        **more,
    }


NODES = [
    node(1, [card(1, 0, 97, 71), card(1, 1, 88, 64)], node_type="master"),
    node(2, [card(2, 0, 54, 38), card(2, 1, 0, 0)]),
    node(3, [card(3, 0, 61, 20)], status="offline", last_heartbeat=ago(95)),
]
WORKERS = [
    worker(
        "train-1",
        "n1",
        "train",
        status="busy",
        current_tasks=1,
        gpu_info=[{"id": "GPU-10"}, {"id": "GPU-11"}],
    ),
    worker(
        "llama",
        "n2",
        "generate",
        status="busy",
        current_tasks=2,
        concurrency=4,
        gpu_info=[{"id": "GPU-20"}],
        loaded_models=["llama-3-8b"],
    ),
    worker("echo", "n1", "echo"),
]
RUNNING = [
    task(1, "train", "running", 1900, started_at=ago(1810), worker_id="w-train-1"),
    task(2, "generate", "running", 4, started_at=ago(3), worker_id="w-llama"),
    task(3, "generate", "running", 2, started_at=ago(1), worker_id="w-llama"),
]
WAITING = [
    task(4, "train", "queued", 620, labels={"team": "vision"}),
    task(5, "train", "queued", 540, priority=10),
    task(6, "train", "queued", 30),
]
ENDED = [
    task(
        7,
        "train",
        "failed",
        2600,
        started_at=ago(2500),
        completed_at=ago(2000),
        duration=500.0,
        error={"kind": "out_of_memory", "message": "needs 92 GB"},
    ),
    task(
        8,
        "echo",
        "completed",
        61,
        started_at=ago(60),
        completed_at=ago(60),
        duration=0.002,
        worker_id="w-echo",
    ),
]
STATUS = {
    "status": "healthy",
    "total_nodes": 3,
    "online_nodes": 2,
    "total_workers": 3,
    "active_workers": 3,
    "queued_tasks": 3,
    "running_tasks": 3,
    "tasks": {"queued": 3, "running": 3, "completed": 1204, "failed": 1},
    "gpu_utilization": 59.8,
    "uptime_s": 86_400.0 * 3,
}
HEALTH = {
    "status": "degraded",
    "reasons": [
        {
            "rule": "node_lost",
            "severity": "error",
            "subject": "n3",
            "title": "gpu-3 has not been heard for 95 s",
        }
    ],
}


def tell(manager: StandIn) -> None:
    """Have the stand-in tell of this cluster."""
    manager.on("GET /cluster/status", STATUS)
    manager.on("GET /nodes", {"nodes": NODES})
    manager.on("GET /workers", {"workers": WORKERS})
    manager.on("GET /cluster/health", HEALTH)
    manager.on("GET /alerts", {"alerts": []})
    # The order in which they are asked for.
    lists = {"queued": WAITING, "running": RUNNING}
    manager.on(
        "GET /tasks",
        lambda seen: _page(lists.get(seen.query["status"], ENDED)),
    )
    for each in (*RUNNING, *WAITING, *ENDED):
        manager.on(f"GET /tasks/{each['task_id']}", each)
    waits = {"reason": "no_free_worker", "message": "all 1 worker(s) are busy"}
    first = WAITING[0]
    manager.on(f"GET /tasks/{first['task_id']}", {**first, "waiting": waits})


def _page(tasks: list[Any]) -> Any:
    from tests.unit.client.stand_in import Answer

    return Answer({"tasks": tasks, "next_cursor": None})
