"""One value, the same words under every command."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.unit.cli import top_cluster
from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import StandIn


def row(text: str, *words: str) -> str:
    lines = text.splitlines()
    return next(line for line in lines if all(word in line for word in words))


@pytest.fixture
def told(manager: StandIn) -> StandIn:
    top_cluster.tell(manager)
    # Not as old as this module: it may have been loaded minutes ago.
    heard = (datetime.now(UTC) - timedelta(seconds=20)).isoformat()
    held = top_cluster.node(9, [], scheduling="draining", last_heartbeat=heard)
    manager.on("GET /nodes", {"nodes": [held]})
    return manager


@pytest.mark.parametrize("command", [["status"], ["nodes"], ["top", "--once"]])
def test_a_node_is_said_to_drain_and_when_it_was_heard(
    told: StandIn, corral: Corral, command: list[str]
) -> None:
    out = corral(*command).out
    line = row(out, "gpu-9", "online")
    assert "online, draining" in line
    assert line.endswith(" s ago")
    assert "STATUS" in row(out, "HEARTBEAT")


@pytest.mark.parametrize("command", [["workers"], ["top", "--once"]])
def test_a_worker_has_so_many_tasks_of_those_it_takes(
    told: StandIn, corral: Corral, command: list[str]
) -> None:
    busy = top_cluster.worker("pair", "n9", "x", current_tasks=2, concurrency=4)
    told.on("GET /workers", {"workers": [busy]})
    assert "2/4" in row(corral(*command).out, "pair")


@pytest.mark.parametrize("command", [["tasks"], ["top", "--once"]])
def test_a_task_that_runs_says_for_how_long(
    told: StandIn, corral: Corral, command: list[str]
) -> None:
    began = (datetime.now(UTC) - timedelta(hours=3)).isoformat()
    task = top_cluster.task(1, "train", "running", 20_000, started_at=began)
    told.on("GET /tasks", {"tasks": [task], "next": None})
    out = corral(*command).out
    assert row(out, "train", "3 h")
    assert "ATTEMPT" in row(out, "RAN")


def test_a_dead_letter_says_what_kind_of_error(told: StandIn, corral: Corral) -> None:
    error = {"kind": "out_of_memory", "message": "needs 92 GB"}
    task = top_cluster.task(1, "train", "failed", 60, error=error)
    told.on("GET /tasks", {"tasks": [task], "next": None})
    for command in (["dlq", "list"], ["top", "--once"]):
        assert row(corral(*command).out, "out_of_memory: needs 92 GB")


def test_a_task_says_what_was_asked_for_it(told: StandIn, corral: Corral) -> None:
    asked = {
        "name": "night run",
        "schedule": "nightly",
        "scheduled_at": "2026-01-01T03:00Z",
        "resources": {"gpus": 0.5},
        "only_on": "w-1",
        "node_labels": {"disk": "ssd"},
        "tolerates": ["spot"],
        "group": "g",
        "group_limit": 3,
        "gang": "ring",
        "gang_rank": 1,
        "gang_size": 2,
        "preemptible": True,
        "no_cache": True,
        "profile": "torch",
    }
    told.on("GET /tasks/t1", top_cluster.task(1, "train", "queued", 5, **asked))
    out = corral("task", "t1").out
    for words in (
        ("name", "night run"),
        ("schedule", "nightly, planned for 2026-01-01T03:00Z"),
        ("takes", '{"gpus": 0.5}'),
        ("only on", "w-1"),
        ("node labels", "disk=ssd"),
        ("tolerates", "spot"),
        ("group", "g, at most 3 at once"),
        ("gang", "ring, rank 1 of 2"),
        ("preemptible", "for critical tasks"),
        ("kept result", "is not taken"),
        ("profile", "torch"),
    ):
        assert row(out, *words)
