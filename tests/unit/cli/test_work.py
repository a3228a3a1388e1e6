"""Run, submit, tasks, task, logs, cancel, wait."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import Answer, Seen, StandIn, fault, submitted, task_out

FAILURE = {"kind": "ValueError", "message": "no\nsuch file", "traceback": "Trace\nback"}


def test_run_prints_the_bare_result(manager: StandIn, corral: Corral) -> None:
    manager.on("POST /tasks", Answer(task_out(), 201))
    ran = corral("run", "echo", '{"message":"hi"}')
    assert (ran.code, ran.out, ran.err) == (0, '{"echoed": "hi"}\n', "")
    assert len(manager.seen) == 1
    assert manager.seen[0].json["parameters"] == {"message": "hi"}
    assert manager.seen[0].headers["authorization"] == "Bearer corral_k_s"


def test_run_follows_what_is_not_over_at_once(manager: StandIn, corral: Corral) -> None:
    manager.on("POST /tasks", Answer(task_out(status="running", result=None), 201))
    manager.on("GET /tasks/t1", task_out())
    ran = corral("run", "echo")
    assert (ran.code, ran.out) == (0, '{"echoed": "hi"}\n')


def test_run_passes_its_options_on(manager: StandIn, corral: Corral) -> None:
    manager.on("POST /tasks", submitted())
    words = "--priority high --timeout 3 --retries 2 --label a=b --label c:d=e"
    more = "--run-after 5 --deadline 2030-01-01T00:00:00Z --detach"
    ran = corral("run", "echo", *words.split(), *more.split())
    assert (ran.code, ran.out) == (0, "t1\n")
    sent = manager.seen[0].json
    del sent["idempotency_key"]
    assert sent == {
        "task_type": "echo",
        "parameters": {},
        "priority": "high",
        "timeout": 3.0,
        "retries": 2,
        "labels": {"a": "b", "c:d": "e"},
        "run_after": 5.0,
        "deadline": "2030-01-01T00:00:00Z",
    }


def test_run_of_a_failing_task_exits_1_with_its_message(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("POST /tasks", task_out(status="failed", error=FAILURE))
    ran = corral("run", "echo")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.endswith("Error: task t1 failed: no such file\n")
    whole = corral("run", "echo", "--json")
    assert whole.code == 1
    assert json.loads(whole.out)["error"]["traceback"] == "Trace\nback"


def test_parameters_come_from_a_file_or_from_stdin(
    manager: StandIn, corral: Corral, tmp_path: Path
) -> None:
    manager.on("POST /tasks", submitted())
    (tmp_path / "in.json").write_text('{"from": "file"}', encoding="utf-8")
    corral("submit", "echo", "@in.json")
    corral("submit", "echo", "-", stdin='{"from": "stdin"}')
    sources = [seen.json["parameters"]["from"] for seen in manager.seen]
    assert sources == ["file", "stdin"]


@pytest.mark.parametrize("text", ["{", "NaN", "@none.json", "[" * 100_000])
def test_parameters_that_are_not_json_are_a_usage_error(
    manager: StandIn, corral: Corral, text: str
) -> None:
    ran = corral("run", "echo", text)
    assert ran.code == 2
    assert "Traceback" not in ran.err
    assert manager.seen == []


@pytest.mark.parametrize("label", ["novalue", "=x"])
def test_label_without_key_or_value_is_a_usage_error(
    corral: Corral, label: str
) -> None:
    assert corral("run", "echo", "--label", label).code == 2


def test_result_no_terminal_can_show_is_escaped(
    manager: StandIn, corral: Corral
) -> None:
    odd = json.dumps(task_out()).replace('{"echoed": "hi"}', '"\\ud800 é"')
    manager.on("POST /tasks", Answer(odd.encode()))
    ran = corral("run", "echo")
    assert json.loads(ran.out) == "\ud800 é"


def _accept(seen: Seen) -> Answer:
    ids = [f"t{task['parameters']}" for task in seen.json["tasks"]]
    no = (
        [{"index": 1, "code": "invalid_field", "message": "no"}]
        if "tbad" in ids
        else []
    )
    given = [None if i == "tbad" else i for i in ids]
    return Answer({"task_ids": given, "errors": no}, 201)


def test_submit_of_a_file_prints_ids_in_order(manager: StandIn, corral: Corral) -> None:
    manager.on("POST /tasks/batch", _accept)
    lines = "".join(f"{n}\n" for n in range(5))
    ran = corral("submit", "echo", "--file", "-", "--priority", "3", stdin=lines)
    assert (ran.code, ran.out.split()) == (0, ["t0", "t1", "t2", "t3", "t4"])
    assert {task["priority"] for task in manager.seen[0].json["tasks"]} == {3}


def test_refused_line_of_a_file_is_named_and_the_others_are_in(
    manager: StandIn, corral: Corral, tmp_path: Path
) -> None:
    manager.on("POST /tasks/batch", _accept)
    lines = ['{"task_type":"echo","parameters":1}', ""]
    lines += [line.replace("1", word) for line in lines[:1] for word in ('"bad"', "3")]
    (tmp_path / "tasks.jsonl").write_text("\n".join(lines), encoding="utf-8")
    ran = corral("submit", "--file", "tasks.jsonl")
    assert (ran.code, ran.out.split()) == (1, ["t1", "t3"])
    assert ran.err == "Error: line 3: no\n"


def test_file_with_a_line_that_is_not_json_sends_nothing(
    manager: StandIn, corral: Corral
) -> None:
    ran = corral("submit", "echo", "--file", "-", stdin="1\n{\n")
    assert ran.code == 2
    assert "line 2" in ran.err
    assert manager.seen == []


def test_submit_without_type_or_file_is_a_usage_error(corral: Corral) -> None:
    assert corral("submit").code == 2


def test_tasks_lists_with_filters(manager: StandIn, corral: Corral) -> None:
    task = task_out("a-long-id-" + "x" * 40, labels={"a": "b"})
    manager.on("GET /tasks", {"tasks": [task], "next_cursor": None})
    ran = corral("tasks", "--status", "completed", "--label", "a=b", "--dead")
    assert task["task_id"] in ran.out
    assert manager.seen[0].query == {
        "status": "completed",
        "label": "a:b",
        "dead": "true",
        "limit": "50",
    }
    assert json.loads(corral("tasks", "--json").out)[0]["labels"] == {"a": "b"}


def test_empty_list_of_tasks_says_what_to_do(manager: StandIn, corral: Corral) -> None:
    manager.on("GET /tasks", {"tasks": [], "next_cursor": None})
    assert "corral run echo" in corral("tasks").err
    assert "corral tasks" in corral("tasks", "--status", "failed").err
    assert corral("tasks", "--json").out == "[]\n"


def test_task_tells_why_it_waits(manager: StandIn, corral: Corral) -> None:
    waiting = {
        "reason": "no_worker",
        "message": "no worker serves 'foo'",
        "details": {"job_type": "foo"},
    }
    waits = task_out(status="queued", state="assigned", waiting=waiting)
    manager.on("GET /tasks/t1", waits)
    ran = corral("task", "t1")
    assert "no worker serves 'foo'\n" in ran.out
    assert "queued (assigned)" in ran.out
    assert json.loads(corral("task", "t1", "--json").out)["waiting"] == waiting


def test_task_shows_attempts_error_and_traceback(
    manager: StandIn, corral: Corral
) -> None:
    attempt = {"attempt": 1, "outcome": "failed", "worker_id": "w9", "error": FAILURE}
    failed = task_out(status="failed", error=FAILURE, attempts=[attempt])
    manager.on("GET /tasks/t1", failed)
    ran = corral("task", "t1")
    assert "ValueError: no such file" in ran.out
    assert "w9" in ran.out
    assert ran.out.endswith("Trace\nback\n")


def test_logs_go_to_the_stream_they_came_from(manager: StandIn, corral: Corral) -> None:
    lines = [{"text": "hello"}, {"text": "oh", "stream": "stderr"}]
    page = {"lines": lines, "cursor": "2", "done": True}
    end = {"lines": [], "cursor": "2", "done": True}
    manager.on("GET /tasks/t1/logs", page, end)
    ran = corral("logs", "t1")
    assert (ran.out, ran.err) == ("hello\n", "oh\n")
    assert "nothing" in corral("logs", "-f", "t1").err
    corral("logs", "t1", "--attempt", "2", "--tail", "9")
    asked = manager.asked("GET /tasks/t1/logs")[-1].query
    assert (asked["attempt"], asked["tail"]) == ("2", "9")


def test_cancel_goes_on_after_one_that_had_ended(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("POST /tasks/a/cancel", fault("conflict", 409, "task a had ended"))
    manager.on("POST /tasks/b/cancel", {"status": "cancelled"})
    ran = corral("cancel", "a", "b")
    assert (ran.code, ran.out) == (1, "cancelled b\n")
    assert ran.err == "Error: task a had ended\n"
    assert corral("cancel", "-", stdin="b\n").code == 0


def test_all_that_match_are_cancelled_page_by_page(
    manager: StandIn, corral: Corral
) -> None:
    first = {"done": 1000, "refused": 0, "errors": [], "next_cursor": "more"}
    error = {"task_id": "a", "code": "conflict", "message": "task a had ended"}
    last = {"done": 2, "refused": 1, "errors": [error], "next_cursor": None}
    manager.on("POST /tasks/cancel", first, last)
    ran = corral("cancel", "--type", "paint", "--label", "team=web", "--model", "oil")
    assert (ran.code, ran.out) == (1, "cancelled 1002 tasks\n")
    assert ran.err == "a: task a had ended\n"
    told = {"task_type": "paint", "label": "team:web", "model_name": "oil"}
    asked = [seen.query for seen in manager.asked("POST /tasks/cancel")]
    assert asked == [told, {**told, "cursor": "more"}]


def test_ended_tasks_are_run_again_by_id_or_all_that_match(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("POST /tasks/a/requeue", fault("conflict", 409, "task a is running"))
    manager.on("POST /tasks/b/requeue", task_out("b", status="queued"))
    page = {"done": 1, "refused": 0, "errors": [], "next_cursor": None}
    manager.on("POST /tasks/requeue", page)
    ran = corral("requeue", "a", "b")
    assert (ran.code, ran.out) == (1, "requeued b\n")
    assert ran.err == "Error: task a is running\n"
    assert corral("requeue", "--search", "refused").out == "requeued 1 task\n"
    assert manager.asked("POST /tasks/requeue")[0].query == {"search": "refused"}


@pytest.mark.parametrize(
    "words",
    [
        ("cancel",),
        ("requeue",),
        ("requeue", "a", "--type", "paint"),
        ("cancel", "a", "--type", "paint"),
        ("cancel", "--array", "a-1", "--type", "paint"),
    ],
)
def test_who_says_too_little_or_two_things_acts_on_nothing(
    manager: StandIn, corral: Corral, words: tuple[str, ...]
) -> None:
    assert corral(*words).code == 2
    assert manager.seen == []


def test_wait_exits_1_unless_all_completed(manager: StandIn, corral: Corral) -> None:
    good, bad = task_out("a"), task_out("b", status="failed", error=FAILURE)
    manager.on("POST /tasks/collect", {"tasks": [good, bad]}, {"tasks": [good]})
    ran = corral("wait", "a", "b")
    assert (ran.code, ran.out) == (1, "a completed\nb failed\n")
    assert ran.err == "Error: task b failed: no such file\n"
    assert corral("wait", "a").code == 0


def test_wait_that_runs_out_of_time_exits_1(manager: StandIn, corral: Corral) -> None:
    manager.on("POST /tasks/collect", {"tasks": [], "pending": ["a"]})
    ran = corral("wait", "a", "--timeout", "0")
    assert ran.code == 1
    assert ran.err == "Error: 1 of 1 tasks have not ended after 0 s\n"
