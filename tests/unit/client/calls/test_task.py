"""Submit, wait, result, logs, cancel of one task."""

from __future__ import annotations

import math

import pytest

from corral import errors
from corral.client import AsyncClient, Client, LogLine
from tests.unit.client.stand_in import Answer, Seen, StandIn, fault, submitted, task_out


def test_submit_sends_type_parameters_and_options(
    manager: StandIn, client: Client
) -> None:
    manager.on("POST /tasks", Answer(submitted(), 201))
    client.submit("echo", [1, None], labels={"a": "b"}, timeout=3.5)
    sent = manager.seen[0].json
    assert sent.pop("idempotency_key")
    assert sent == {
        "task_type": "echo",
        "parameters": [1, None],
        "labels": {"a": "b"},
        "timeout": 3.5,
    }
    assert manager.seen[0].headers["authorization"] == "Bearer corral_k_s"


async def test_requests_carry_the_ids_that_the_environment_tells(
    manager: StandIn,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manager.on("GET /tasks/t1", task_out())
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    client.get_task("t1")
    monkeypatch.setenv("CORRAL_REQUEST_ID", "order-1")
    monkeypatch.setenv("TRACEPARENT", parent)
    client.get_task("t1")
    async with AsyncClient(manager.url, "corral_k_s") as waiting:
        await waiting.get_task("t1")
    monkeypatch.setenv("CORRAL_REQUEST_ID", "no good\nid")
    monkeypatch.setenv("TRACEPARENT", "nonsense")
    client.get_task("t1")
    names = ("x-request-id", "traceparent")
    told = [tuple(map(seen.headers.get, names)) for seen in manager.seen]
    assert told == [(None, None), *[("order-1", parent)] * 2, (None, None)]


@pytest.mark.parametrize(
    "bad", [math.nan, [math.inf], {"a": {"b": -math.inf}}, "\ud800", {1, object()}]
)
def test_parameters_json_cannot_carry_are_refused_before_sending(
    manager: StandIn, client: Client, bad: object
) -> None:
    with pytest.raises(errors.InvalidField) as caught:
        client.submit("echo", bad)
    assert caught.value.field == "parameters"
    assert manager.seen == []


def test_wait_polls_until_the_task_has_ended(manager: StandIn, client: Client) -> None:
    manager.on(
        "GET /tasks/t1",
        task_out(status="queued"),
        task_out(status="running"),
        task_out(),
    )
    assert client.wait("t1").is_completed
    assert [float(seen.query["wait"]) for seen in manager.seen] == [25.0] * 3


def test_wait_says_why_the_task_has_not_ended_in_time(
    manager: StandIn, client: Client
) -> None:
    waiting = {"reason": "no worker serves 'echo'", "details": None}
    manager.on("GET /tasks/t1", task_out(status="queued", waiting=waiting))
    with pytest.raises(TimeoutError, match=r"still queued after 0 s \(no worker"):
        client.wait("t1", timeout=0)


def test_result_of_a_completed_task_is_what_it_returned(
    manager: StandIn, client: Client
) -> None:
    manager.on("POST /tasks", task_out())
    assert client.run("echo", {"message": "hi"}) == {"echoed": "hi"}


def test_run_goes_on_waiting_when_the_task_outlasts_the_first_answer(
    manager: StandIn, client: Client
) -> None:
    manager.on("POST /tasks", task_out(status="running"))
    manager.on("GET /tasks/t1", task_out())
    assert client.run("echo", {"message": "hi"}) == {"echoed": "hi"}


def test_result_of_a_failed_task_raises_with_its_facts(
    manager: StandIn, client: Client
) -> None:
    error = {"kind": "ValueError", "message": "no such file", "traceback": "Trace..."}
    manager.on("GET /tasks/t1", task_out(status="failed", error=error))
    with pytest.raises(
        errors.TaskFailed, match="task t1 failed: no such file"
    ) as caught:
        client.result("t1")
    assert caught.value.kind == "ValueError"
    assert caught.value.traceback == "Trace..."
    assert caught.value.task.attempt == 1


def test_cancel_of_an_ended_task_is_a_conflict(
    manager: StandIn, client: Client
) -> None:
    manager.on("POST /tasks/t1/cancel", {"status": "cancelled"}, fault("conflict", 409))
    client.cancel("t1")
    with pytest.raises(errors.Conflict):
        client.cancel("t1")


def test_requeue_returns_the_task_as_it_is_now(
    manager: StandIn, client: Client
) -> None:
    manager.on("POST /tasks/t1/requeue", task_out(status="queued", run=2))
    assert client.requeue("t1").run == 2


def _log_pages(seen: Seen) -> Answer:
    line = {"attempt": 1, "at": "2026-01-01T00:00:00Z", "stream": "stdout", "text": ""}
    after = seen.query.get("after")
    if after is None:
        return Answer(
            {"lines": [{**line, "text": "one"}], "cursor": "1", "done": False}
        )
    if after == "1":
        return Answer({"lines": [{**line, "text": "two"}], "cursor": "2", "done": True})
    return Answer({"lines": [], "cursor": "2", "done": True})


@pytest.mark.parametrize("follow", [False, True])
async def test_logs_come_page_by_page_to_their_end(
    manager: StandIn, client: Client, follow: bool
) -> None:
    manager.on("GET /tasks/t1/logs", _log_pages)
    lines = [line.text for line in client.logs("t1", follow=follow)]
    assert lines == ["one", "two"]
    async with AsyncClient(manager.url, "") as aclient:
        again = [line.text async for line in aclient.logs("t1", follow=follow)]
    assert again == lines
    assert ("wait" in manager.seen[0].query) is follow


def test_progress_is_told_between_the_lines(manager: StandIn, client: Client) -> None:
    def page(number: int, share: float, *texts: str) -> Answer:
        lines = [{"text": text, "at": 1.5} for text in texts]
        told = {"fraction": share, "message": "m"}
        return Answer(
            {"lines": lines, "cursor": f"1:{number}", "done": number == 3}
            | {"progress": told}
        )

    manager.on("GET /tasks/t1/logs", page(1, 0.1, "a"), page(1, 0.2), page(3, 0.2, "b"))
    heard = [
        word.text if isinstance(word, LogLine) else word.fraction
        for word in client.follow("t1", tail=5)
    ]
    assert heard == ["a", 0.1, 0.2, "b"]
    asked = [(s.query.get("tail"), s.query.get("progress")) for s in manager.seen]
    assert asked == [("5", "-1.0"), (None, "0.1"), (None, "0.2")]


def test_following_logs_waits_through_silence(manager: StandIn, client: Client) -> None:
    silent = {"lines": [], "cursor": "0", "done": False}
    last = {"lines": [{"text": "late", "at": 1.5}], "cursor": "1", "done": True}
    end = {"lines": [], "cursor": "1", "done": True}
    manager.on("GET /tasks/t1/logs", silent, silent, last, end)
    assert [line.text for line in client.logs("t1", follow=True)] == ["late"]
