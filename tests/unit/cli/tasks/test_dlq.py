"""Dead letters: list, show, requeue, discard, and the walk through them."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import StandIn, fault, task_out

ERROR = {"kind": "ValueError", "message": "no file", "traceback": "Trace\nback"}
ATTEMPT = {"attempt": 1, "outcome": "failed", "error": ERROR, "worker_id": "w1"}


@pytest.fixture(autouse=True)
def dead(manager: StandIn) -> None:
    tasks = [
        task_out(name, status="failed", error=ERROR, attempts=[ATTEMPT])
        for name in ("a", "b", "c")
    ]
    manager.on("GET /tasks", {"tasks": tasks, "total": 3})
    manager.on("POST /discard_from_dlq", None)
    for task in tasks:
        manager.on(f"GET /tasks/{task['task_id']}", task)
        manager.on(f"POST /tasks/{task['task_id']}/requeue", task)


def test_dead_letters_are_listed_and_shown(manager: StandIn, corral: Corral) -> None:
    assert "no file" in corral("dlq", "list").out
    assert manager.seen[0].query["dead"] == "true"
    assert len(json.loads(corral("dlq", "list", "--json").out)) == 3
    shown = corral("dlq", "show", "a").out
    assert "Trace\nback" in shown
    assert "ValueError: no file" in shown


def test_dead_letters_are_requeued_and_discarded(
    manager: StandIn, corral: Corral
) -> None:
    assert corral("dlq", "requeue", "a", "b").out == "requeued a\nrequeued b\n"
    assert corral("dlq", "discard", "c").out == "discarded c\n"
    assert manager.seen[-1].json == {"job_id": "c"}


def test_the_walk_does_what_each_letter_says(manager: StandIn, corral: Corral) -> None:
    ran = corral("dlq", "walk", stdin="r\nD\n\n")
    assert ran.code == 0
    assert ran.out.endswith("1 requeued, 1 discarded\n")
    assert "3 of 3" in ran.err
    assert len(manager.asked("POST /tasks/a/requeue")) == 1
    assert manager.asked("POST /discard_from_dlq")[0].json == {"job_id": "b"}


def test_the_walk_asks_again_and_ends_with_q(manager: StandIn, corral: Corral) -> None:
    ran = corral("dlq", "walk", stdin="x\ns\nq\n")
    assert "r, d, s or q" in ran.err
    assert ran.out.endswith("0 requeued, 0 discarded\n")
    assert manager.asked("GET /tasks/c") == []


def test_the_walk_goes_on_when_somebody_was_quicker(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("POST /tasks/a/requeue", fault("conflict", 409, "a is queued"))
    ran = corral("dlq", "walk", stdin="r\nr\nq\n")
    assert "a is queued" in ran.err
    assert ran.out.endswith("1 requeued, 0 discarded\n")


def test_a_walk_without_dead_letters_says_so(manager: StandIn, corral: Corral) -> None:
    manager.on("GET /tasks", {"tasks": [], "total": 0})
    assert "No dead letters" in corral("dlq", "walk").err
