"""Nodes, workers, worker, job-type, token."""

from __future__ import annotations

import json
from typing import Any

import pytest

from corral.cli.words.gpu import offered
from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import StandIn

STATUS: dict[str, Any] = {
    "cluster_id": "c1",
    "status": "healthy",
    "total_workers": 2,
    "active_workers": 1,
    "queued_tasks": 3,
    "running_tasks": 1,
    "tasks": {"queued": 2, "assigned": 1, "running": 1, "completed": 40},
    "total_nodes": 1,
    "online_nodes": 1,
    "gpu_utilization": None,
    "total_memory_mb": 2048.0,
    "available_memory_mb": 1024.0,
    "uptime_s": 7300.0,
    "version": "0.1.0",
}
WORKER = {
    "worker_id": "w1",
    "name": "[red]echo[/red]",
    "status": "online",
    "job_types": ["echo", "sleep"],
    "node_id": "n1",
    "current_tasks": 2,
    "restarts": 0,
}
NODE = {
    "node_id": "n1",
    "hostname": "host",
    "status": "online",
    "workers": 2,
    "cpu_percent": 12.4,
    "last_heartbeat": "2026-01-01T00:00:00Z",
}


def test_nodes_and_workers_are_listed(manager: StandIn, corral: Corral) -> None:
    manager.on("GET /nodes", {"nodes": [NODE]})
    manager.on("GET /workers", {"workers": [WORKER]})
    assert "12 %" in corral("nodes").out
    out = corral("workers").out
    assert "[red]echo[/red]" in out
    assert "echo, sleep" in out
    assert json.loads(corral("workers", "--json").out)[0]["worker_id"] == "w1"
    assert json.loads(corral("nodes", "--json").out)[0]["hostname"] == "host"


@pytest.mark.parametrize(
    ("cards", "words"),
    [
        ([], ""),
        ([{"is_offered": False}], "0 of 1"),
        ([{"is_offered": True}], "1"),
        (
            [{"is_offered": 1, "memory_offered_mb": 1024, "memory_total_mb": 2048}] * 2,
            "2, 2/4 GB offered",
        ),
        ([{"is_offered": True, "is_simulated": True}], "1 simulated"),
    ],
)
def test_gpus_of_a_node_are_counted(cards: list[dict[str, Any]], words: str) -> None:
    assert offered(cards) == words


def test_empty_lists_say_what_to_do(manager: StandIn, corral: Corral) -> None:
    manager.on("GET /nodes", {"nodes": []})
    manager.on("GET /workers", {"workers": []})
    manager.on("GET /job-types", {"job_types": []})
    assert "corral join" in corral("nodes").err
    assert "corral worker launch" in corral("workers").err
    assert corral("workers", "--status", "busy").err == "No worker is busy.\n"
    assert "corral job-type add" in corral("job-type", "list").err


def test_worker_launch_and_stop(manager: StandIn, corral: Corral) -> None:
    manager.on("POST /workers", {"workers": [WORKER]})
    manager.on("DELETE /workers/w1", {"message": "stopped"})
    words = ["--job-type", "echo", "--params", '{"a": 1}', "--count", "2"]
    ran = corral("worker", "launch", "a:B", *words, "--node", "n1")
    assert ran.out == "w1\n"
    assert manager.seen[0].json == {
        "worker_class": "a:B",
        "job_types": ["echo"],
        "params": {"a": 1},
        "node_id": "n1",
        "count": 2,
    }
    assert corral("worker", "stop", "w1").out == "stopped w1\n"
    assert corral("worker", "launch", "a:B", "--params", "[]").code == 2


def test_job_types_are_listed_and_added(manager: StandIn, corral: Corral) -> None:
    manager.on("GET /job-types", {"job_types": [{"name": "echo"}]})
    manager.on("POST /job-types", {})
    assert "echo" in corral("job-type", "list").out
    ran = corral("job-type", "add", "sum", "--input-schema", '{"type": "array"}')
    assert ran.out == "added sum\n"
    assert manager.seen[-1].json == {"name": "sum", "input_schema": {"type": "array"}}


def test_token_alone_is_on_stdout(manager: StandIn, corral: Corral) -> None:
    manager.on("POST /join-tokens", {"token": "corral_a_b", "uses": 2})
    ran = corral("token", "create", "--uses", "2", "--ttl", "60")
    assert ran.out == "corral_a_b\n"
    assert f"corral join {manager.url}" in ran.err
    assert manager.seen[0].json == {"ttl_s": 60.0, "uses": 2}
