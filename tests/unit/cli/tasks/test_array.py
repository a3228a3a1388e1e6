"""`--array`, `--sweep`, and what `wait` and `cancel` do with an array."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import DROP, Answer, Seen, StandIn, task_out

BATCH = "POST /tasks/batch"
PAGE = "GET /tasks"
COLLECT = "POST /tasks/collect"


def accept(seen: Seen) -> Answer:
    tasks = seen.json["tasks"]
    ids = [f"t{task['labels']['array.index']}" for task in tasks]
    return Answer({"task_ids": ids, "errors": []}, 201)


def member(index: int, status: str) -> dict[str, Any]:
    labels = {"array": "a-1", "array.index": str(index)}
    return task_out(f"t{index}", status, labels=labels)


@pytest.fixture
def sent(manager: StandIn) -> StandIn:
    manager.on(BATCH, accept)
    return manager


def test_an_array_is_one_batch_with_a_common_label(
    corral: Corral, sent: StandIn
) -> None:
    ran = corral("submit", "echo", '{"n": "{index}"}', "--array", "0-2")
    (call,) = sent.asked(BATCH)
    tasks = call.json["tasks"]
    assert [task["parameters"] for task in tasks] == [{"n": 0}, {"n": 1}, {"n": 2}]
    (array_id,) = {task["labels"]["array"] for task in tasks}
    assert ran.out == f"{array_id}\n"
    assert "3 of 3 tasks submitted" in ran.err
    assert ran.code == 0


def test_an_array_sent_again_has_the_same_keys(corral: Corral, sent: StandIn) -> None:
    sent.on(BATCH, DROP, accept)
    for _ in range(2):
        ran = corral("submit", "echo", "--array", "0-1", "--idempotency-key", "mine")
        assert ran.code == 0
    keys = [[t["idempotency_key"] for t in c.json["tasks"]] for c in sent.asked(BATCH)]
    assert keys == [["mine:0", "mine:1"]] * 3


def test_a_broken_connection_says_how_to_go_on(
    corral: Corral, manager: StandIn
) -> None:
    down = Answer({"error": {"code": "store_unavailable", "message": "away"}}, 503)
    manager.on(BATCH, down)
    ran = corral("submit", "echo", "--array", "0-1")
    assert ran.code == 3
    array_id = manager.asked(BATCH)[0].json["tasks"][0]["labels"]["array"]
    assert f"--idempotency-key {array_id} goes on" in ran.err


def test_a_dry_run_shows_the_tasks_and_sends_nothing(
    corral: Corral, manager: StandIn, tmp_path: Path
) -> None:
    (tmp_path / "p.csv").write_text("lr\n0.1\n0.2\n")
    ran = corral("submit", "train", "--sweep", "p.csv", "--dry-run")
    assert ran.out == '{"train": {"lr": 0.1}}\n{"train": {"lr": 0.2}}\n'
    assert "2 tasks; nothing was submitted" in ran.err
    ran = corral("submit", "train", "--sweep", "p.csv", "--dry-run", "--json")
    assert [t["parameters"] for t in json.loads(ran.out)["tasks"]] == [
        {"lr": 0.1},
        {"lr": 0.2},
    ]
    assert manager.seen == []


def test_refused_tasks_are_told_by_their_number(
    corral: Corral, manager: StandIn
) -> None:
    error = {"index": 1, "code": "invalid_field", "message": "no"}
    manager.on(BATCH, {"task_ids": ["t5", None], "errors": [error]})
    ran = corral("submit", "echo", "--array", "5-6", "--json")
    assert ran.code == 1
    assert "Error: index 6: no" in ran.err
    assert json.loads(ran.out)["task_ids"] == ["t5", None]


@pytest.mark.parametrize(
    "options",
    [
        ["--array", "x"],
        ["--array", "0-9%0"],
        ["--array", "0-1", "--sweep", "p.csv"],
        ["--sweep", "bad.csv"],
        ["--dry-run"],
        ["--array", "0-1", "--file", "p.csv"],
    ],
)
def test_options_that_make_no_array_are_refused(
    corral: Corral, manager: StandIn, tmp_path: Path, options: list[str]
) -> None:
    (tmp_path / "p.csv").write_text("a\n1\n")
    (tmp_path / "bad.csv").write_text("a,b\n1\n")
    assert corral("submit", "echo", *options).code == 2
    assert manager.seen == []


def test_a_sweep_of_which_nothing_is_used_is_refused(
    corral: Corral, manager: StandIn, tmp_path: Path
) -> None:
    (tmp_path / "p.csv").write_text("lr\n1\n")
    ran = corral("submit", "echo", '{"rate": "{rl}"}', "--sweep", "p.csv")
    assert ran.code == 2
    assert "nothing holds any of {lr}" in ran.err


def test_waiting_for_an_array_says_how_it_ended(
    corral: Corral, manager: StandIn
) -> None:
    ended = [member(n, "failed" if n == 1 else "completed") for n in range(3)]
    manager.on(PAGE, {"tasks": ended[::-1], "next_cursor": None})
    manager.on(COLLECT, {"tasks": ended, "pending": [], "unknown": []})
    ran = corral("wait", "--array", "a-1")
    assert ran.out == "array a-1: 2 completed, 1 failed\n"
    assert "index 1 (t1) failed" in ran.err
    assert ran.code == 1
    assert manager.asked(PAGE)[0].query["label"] == "array:a-1"
    assert manager.asked(COLLECT)[0].json["task_ids"] == ["t0", "t1", "t2"]


def test_running_an_array_waits_for_all_of_it(corral: Corral, sent: StandIn) -> None:
    ended = [member(n, "completed") for n in range(2)]
    sent.on(COLLECT, {"tasks": ended, "pending": [], "unknown": []})
    ran = corral("run", "echo", "--array", "0-1")
    assert ran.out.endswith(": 2 completed\n")
    assert ran.code == 0


def test_cancelling_an_array_stops_what_is_live(
    corral: Corral, manager: StandIn
) -> None:
    live = {"tasks": [member(1, "running"), member(2, "queued")], "next_cursor": None}
    every = [member(0, "completed"), member(1, "cancelled"), member(2, "cancelled")]
    page = {"tasks": every, "next_cursor": None}
    manager.on(PAGE, page, live, page)
    for task_id in ("t1", "t2"):
        manager.on(f"POST /tasks/{task_id}/cancel", {"status": "cancelled"})
    ran = corral("cancel", "--array", "a-1")
    assert ran.out == "array a-1: 2 cancelled, 1 completed\n"
    assert manager.asked(PAGE)[1].query["status"] == "queued,running"
    assert len(manager.asked("POST /tasks/t2/cancel")) == 1


@pytest.mark.parametrize("command", ["wait", "cancel"])
def test_an_array_that_is_not_there_is_an_error(
    corral: Corral, manager: StandIn, command: str
) -> None:
    manager.on(PAGE, {"tasks": [], "next_cursor": None})
    ran = corral(command, "--array", "a-9")
    assert ran.code == 1
    assert "'a-9'" in ran.err
    assert corral(command).code == 2
    assert corral(command, "t1", "--array", "a-9").code == 2


def test_a_webhook_travels_with_the_task(corral: Corral, manager: StandIn) -> None:
    manager.on("POST /tasks", {"task_id": "t1", "status": "queued"})
    hooks = ["--notify", "http://a.test/x", "--notify", "http://b.test/"]
    assert corral("submit", "echo", *hooks).code == 0
    body = manager.asked("POST /tasks")[0].json
    assert body["notify"] == ["http://a.test/x", "http://b.test/"]
