"""`corral schedule`, and the secret of webhooks."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import StandIn, fault, task_out

NIGHTLY: dict[str, Any] = {
    "name": "nightly",
    "cron": "0 3 * * *",
    "explained": "At 03:00 every day",
    "timezone": "Europe/Berlin",
    "status": "active",
    "missed": "once",
    "overlap": "allow",
    "next_at": "2026-01-02T02:00:00Z",
    "last_at": None,
    "last_task_id": None,
    "note": None,
    "created_at": "2026-01-01T00:00:00Z",
    "task": {"task_type": "echo", "parameters": {"n": 1}, "notify": []},
}


def test_a_schedule_is_added_with_what_was_asked_for(
    corral: Corral, manager: StandIn
) -> None:
    manager.on("POST /schedules", NIGHTLY)
    ran = corral(
        *("schedule", "add", "0 3 * * *", "echo", '{"n": 1}'),
        *("--name", "nightly", "--tz", "Europe/Berlin", "--missed", "all"),
        *("--overlap", "skip", "--retries", "2", "--notify", "http://a.test/"),
    )
    assert (ran.code, ran.out) == (0, "nightly\n")
    assert "At 03:00 every day" in ran.err
    assert manager.asked("POST /schedules")[0].json == {
        "cron": "0 3 * * *",
        "name": "nightly",
        "timezone": "Europe/Berlin",
        "missed": "all",
        "overlap": "skip",
        "task": {
            "task_type": "echo",
            "parameters": {"n": 1},
            "retries": 2,
            "notify": ["http://a.test/"],
        },
    }


def test_a_command_can_be_scheduled(
    corral: Corral, manager: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.on("POST /schedules", NIGHTLY)
    arguments = [
        "schedule",
        "add",
        "@hourly",
        "--json",
        "--git",
        "https://a.test/b.git",
    ]
    words = [*arguments, "--", "python", "x.py", "--fast"]
    monkeypatch.setattr(sys, "argv", ["corral", *words])
    ran = corral(*words)
    assert json.loads(ran.out)["name"] == "nightly"
    task = manager.asked("POST /schedules")[0].json["task"]
    assert task["task_type"] == "run_script"
    assert task["parameters"]["command"] == ["python", "x.py", "--fast"]
    git = task["parameters"]["environment"]["git"]
    assert git["repo_url"] == "https://a.test/b.git"


def test_schedules_are_listed_and_shown_with_their_tasks(
    corral: Corral, manager: StandIn
) -> None:
    manager.on("GET /schedules", {"schedules": [NIGHTLY]})
    days = [f"2026-01-0{day}T02:00:00Z" for day in (2, 3)]
    manager.on("GET /schedules/nightly", NIGHTLY | {"upcoming": days})
    run = task_out("t9", schedule="nightly", scheduled_at="2026-01-01T02:00Z")
    page = {"tasks": [run], "next_cursor": None}
    manager.on("GET /tasks", page)
    listed = corral("schedule", "list").out
    assert "nightly" in listed
    assert "0 3 * * *" in listed
    shown = corral("schedule", "show", "nightly").out
    assert "At 03:00 every day" in shown
    assert "2026-01-01T02:00Z" in shown
    assert "2026-01-03" in shown
    assert manager.asked("GET /tasks")[0].query["schedule"] == "nightly"
    assert json.loads(corral("schedule", "list", "--json").out)[0]["name"] == "nightly"
    told = json.loads(corral("schedule", "show", "nightly", "--json").out)
    assert told["task"]["parameters"] == {"n": 1}


def test_a_schedule_is_paused_resumed_run_and_removed(
    corral: Corral, manager: StandIn
) -> None:
    for verb in ("pause", "resume"):
        manager.on(f"POST /schedules/nightly/{verb}", NIGHTLY)
        assert corral("schedule", verb, "nightly").out == f"{verb}d nightly\n"
    manager.on("POST /schedules/nightly/run", {"task_id": "t1", "status": "queued"})
    assert corral("schedule", "run-now", "nightly").out == "t1\n"
    run = manager.asked("POST /schedules/nightly/run")[0]
    assert run.headers["idempotency-key"]
    manager.on("DELETE /schedules/nightly", {"message": "gone"})
    assert corral("schedule", "remove", "nightly").out == "removed nightly\n"


def test_what_the_manager_refuses_is_told(corral: Corral, manager: StandIn) -> None:
    assert "No schedules yet" in corral_empty(corral, manager)
    manager.on("POST /schedules", fault("invalid_field", 422, "no cron line"))
    ran = corral("schedule", "add", "x", "echo")
    assert (ran.code, ran.err) == (1, "Error: no cron line\n")
    assert corral("schedule", "add", "@daily", "echo", "{}", "more").code == 2


def corral_empty(corral: Corral, manager: StandIn) -> str:
    manager.on("GET /schedules", {"schedules": []})
    return corral("schedule", "list").err


def test_the_secret_of_webhooks_is_shown_when_asked_for(
    corral: Corral, manager: StandIn
) -> None:
    manager.on("GET /cluster/webhook-secret", {"secret": "s3cret"})
    assert corral("config", "--webhook-secret").out == "s3cret\n"
