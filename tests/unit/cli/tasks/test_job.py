"""Job submit, status, wait and clear: tasks in the words of the job API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import Answer, StandIn, fault, submitted, task_out

JOB: dict[str, Any] = {
    "id": "t1",
    "schema_name": "echo",
    "payload": {"message": "hi"},
    "created_at": "2026-01-01T00:00:00Z",
    "priority": 10,
    "error": None,
}


def job(status: str = "completed", output: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "job_id": "t1",
        "worker_id": "w1",
        "status": status,
        "output": output,
        "job": {**JOB, **more},
    }


DONE = job(output={"echoed": "hi"})
FAILED = job("failed", {"error": "no\nfile", "traceback": "x"}, error="no\nfile")


def test_submit_prints_the_id(manager: StandIn, corral: Corral) -> None:
    manager.on("POST /tasks", Answer(submitted(), 201))
    words = ["--priority", "high", "--retries", "2", "--label", "a=b"]
    ran = corral("job", "submit", "echo", '{"message":"hi"}', *words)
    assert (ran.code, ran.out, ran.err) == (0, "t1\n", "")
    sent = manager.seen[0].json
    assert (sent["task_type"], sent["parameters"]) == ("echo", {"message": "hi"})
    assert (sent["priority"], sent["retries"], sent["labels"]) == (
        "high",
        2,
        {"a": "b"},
    )


def test_submit_with_wait_prints_the_output(manager: StandIn, corral: Corral) -> None:
    manager.on("POST /tasks", submitted())
    manager.on("GET /tasks/t1", task_out())
    manager.on("POST /get_job_status", DONE)
    ran = corral("job", "submit", "echo", "--wait")
    assert (ran.code, ran.out) == (0, '{"echoed": "hi"}\n')
    whole = corral("job", "submit", "echo", "--wait", "--json")
    assert json.loads(whole.out) == DONE


def test_submit_with_wait_of_a_failing_job_exits_1(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("POST /tasks", submitted())
    manager.on("GET /tasks/t1", task_out(status="failed"))
    manager.on("POST /get_job_status", FAILED)
    ran = corral("job", "submit", "echo", "--wait")
    assert (ran.code, ran.err) == (1, "Error: job t1 failed: no file\n")


def test_submit_with_json_prints_the_job_status(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("POST /tasks", submitted())
    manager.on("POST /get_job_status", job("queued", {}))
    ran = corral("job", "submit", "echo", "--json")
    assert (ran.code, json.loads(ran.out)["status"]) == (0, "queued")


def test_status_tells_a_job(manager: StandIn, corral: Corral) -> None:
    manager.on("POST /get_job_status", DONE)
    out = corral("job", "status", "t1").out
    assert "completed" in out
    assert '{"echoed": "hi"}' in out
    assert manager.seen[0].json == {"job_id": "t1"}
    assert json.loads(corral("job", "status", "t1", "--json").out) == DONE
    manager.on("POST /get_job_status", job("running", {}))
    assert "output" not in corral("job", "status", "t1").out


def test_status_of_a_job_nobody_knows_exits_1(manager: StandIn, corral: Corral) -> None:
    manager.on("POST /get_job_status", fault("task_not_found", 404, "no job 't1'"))
    ran = corral("job", "status", "t1")
    assert (ran.code, ran.err) == (1, "Error: no job 't1'\n")


@pytest.mark.parametrize("words", [["t1"], ["t1", "--timeout", "5"], ["-"]])
def test_wait_says_how_jobs_ended(
    manager: StandIn, corral: Corral, words: list[str]
) -> None:
    manager.on("GET /tasks/t1", task_out())
    manager.on("POST /tasks/collect", {"tasks": [task_out()]})
    manager.on("POST /get_job_status", DONE)
    ran = corral("job", "wait", *words, stdin="t1\n")
    assert (ran.code, ran.out) == (0, "t1 completed\n")
    assert json.loads(corral("job", "wait", "t1", "--json").out) == [DONE]


def test_wait_for_many_exits_1_unless_all_completed(
    manager: StandIn, corral: Corral
) -> None:
    both = [task_out("a"), task_out("b", status="timed_out")]
    manager.on("POST /tasks/collect", {"tasks": both})
    manager.on(
        "POST /get_job_status", {**DONE, "job_id": "a"}, {**FAILED, "job_id": "b"}
    )
    ran = corral("job", "wait", "a", "b")
    assert (ran.code, ran.out) == (1, "a completed\nb failed\n")
    assert ran.err == "Error: job b failed: no file\n"


def test_wait_gives_up_after_its_timeout(manager: StandIn, corral: Corral) -> None:
    manager.on("POST /tasks/collect", {"tasks": [], "pending": ["t1"]})
    ran = corral("job", "wait", "t1", "--timeout", "0.05")
    assert ran.code == corral("wait", "t1", "--timeout", "0.05").code != 0
    assert "have not ended after 0.05 s" in ran.err


def test_clear_asks_before_it_does(manager: StandIn, corral: Corral) -> None:
    manager.on("POST /clear_databases", None)
    assert corral("job", "clear", stdin="n\n").code == 1
    assert corral("job", "clear", stdin="").code == 1
    assert manager.seen == []
    assert corral("job", "clear", stdin="y\n").out.endswith("cleared\n")
    assert corral("job", "clear", "--yes").out == "cleared\n"
    assert len(manager.asked("POST /clear_databases")) == 2
