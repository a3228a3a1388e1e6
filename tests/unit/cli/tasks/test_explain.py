"""`corral explain`: one page on why a task waits, or why it ran where it did."""

from __future__ import annotations

import json
from typing import Any

from corral.client import Client
from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import StandIn

CALL = "GET /tasks/t1/explain"
COST = {"wait_s": 12.0, "load_s": 0.0, "drop_s": 0.0, "run_s": 20.0, "total_s": 32.0}
WAITING: dict[str, Any] = {
    "task_id": "t1",
    "status": "queued",
    "headline": "Task t1 waits: all 1 worker(s) for 'render' are busy.",
    "reason": {"reason": "workers_busy", "message": "busy", "details": {}},
    "ahead": 0,
    "line": 3,
    "estimated_start": {
        "at": "2026-01-01T00:00:12Z",
        "low": "2026-01-01T00:00:08Z",
        "high": "2026-01-01T00:00:40Z",
        "in_s": 12.0,
    },
    "estimated_duration": 20.0,
    "estimate": {
        "duration": 18.0,
        "low": 15.0,
        "high": 31.0,
        "runs": 40,
        "memory_mb": 512.0,
        "memory_high_mb": 700.0,
        "memory_runs": 12,
    },
    "changes": [
        {"change": "wait", "message": "would start on w1 when task 41 ends"},
        {
            "change": "worker",
            "message": "start another worker for 'render'",
            "command": "corral worker launch CLASS --job-type render",
        },
    ],
    "candidates": [
        {
            "worker_id": "w1",
            "node_id": "n1",
            "verdict": "busy",
            "message": "busy with task 41",
            "cost": {**COST, "score": 0.1},
        },
        {
            "worker_id": "w2",
            "node_id": None,
            "verdict": "type",
            "message": "serves 'b'",
        },
    ],
    "candidates_total": 5,
}
ENDED: dict[str, Any] = {
    "task_id": "t1",
    "status": "completed",
    "headline": "Task t1 ended as completed on worker w1 of node n1.",
    "placement": {
        "worker_id": "w1",
        "node_id": "n1",
        "at": "2026-01-01T00:00:12Z",
        "message": "was free",
        "cost": {**COST, "wait_s": 0.0, "load_s": 6.0},
        "together": 4,
        "passed_over": ["w3"],
    },
    "attempts": [{"attempt": 1, "outcome": "lost", "worker_id": "w9"}],
}


def test_a_waiting_task_gets_a_page(manager: StandIn, corral: Corral) -> None:
    manager.on(CALL, WAITING)
    ran = corral("explain", "t1")
    lines = ran.out.splitlines()
    assert lines[0] == WAITING["headline"]
    assert "change       would start on w1 when task 41 ends" in ran.out
    assert "$ corral worker launch CLASS --job-type render" in ran.out
    assert "0 before it, 3 in its line" in ran.out
    assert "in about 12 s; four of five such tasks: 8.0 s to 40 s" in ran.out
    assert "20 s; four of five such tasks: 15 s to 31 s (40 seen)" in ran.out
    assert "512 MB of GPU memory beside its model (12 seen)" in ran.out
    row = next(line for line in lines if line.startswith("w1"))
    assert row.split()[3:8] == ["12.0", "0.0", "0.0", "20.0", "32.0"]
    assert "3 more worker(s): --all lists them" in ran.err
    assert manager.asked(CALL)[0].query == {"limit": "8"}


def test_all_workers_and_json_on_request(manager: StandIn, corral: Corral) -> None:
    manager.on(CALL, WAITING)
    ran = corral("explain", "t1", "--all", "--json")
    assert manager.asked(CALL)[0].query == {"limit": "0"}
    told = json.loads(ran.out)
    assert told["changes"][1]["command"] == WAITING["changes"][1]["command"]
    assert told["candidates"][0]["cost"]["run_s"] == 20.0


def test_an_ended_task_says_where_it_ran(manager: StandIn, corral: Corral) -> None:
    manager.on(CALL, ENDED)
    out = corral("explain", "t1").out
    assert out.startswith(ENDED["headline"])
    assert "load 6.0 s, run 20 s" in out
    assert "w3" in out
    assert "1: lost on w9" in out
    assert "WORKER" not in out


def test_an_unknown_task_is_one_line(manager: StandIn, corral: Corral) -> None:
    ran = corral("explain", "nope")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("Error: ")


def test_the_client_gives_typed_values(manager: StandIn) -> None:
    manager.on(CALL, WAITING)
    with Client(manager.url, api_key="corral_k_s") as client:
        found = client.explain("t1")
    assert found.changes[0].change == "wait"
    assert found.estimated_start is not None
    assert found.estimated_start.in_s == 12.0
    assert found.candidates[1].cost is None
    assert manager.asked(CALL)[0].query == {}
