"""What a result says about a task in each state, in Celery's words."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from celery import Celery, exceptions

from corral.client import Client
from corral.compat.celery import (
    AsyncResult,
    RemoteError,
    ResultTimeout,
    TaskRevoked,
    adopt,
)
from corral.errors import TaskFailed, TaskNotFound
from tests.unit.client.stand_in import StandIn, fault, task_out


@pytest.fixture
def result(client: Client) -> AsyncResult:
    return AsyncResult("t1", client, "shop.add")


def error(message: str, kind: str = "exception") -> dict[str, Any]:
    return {"kind": kind, "message": message, "traceback": "Traceback ..."}


@pytest.mark.parametrize(
    ("status", "more", "word"),
    [
        ("queued", {}, "PENDING"),
        ("queued", {"tries": 1}, "RETRY"),
        ("running", {}, "STARTED"),
        ("completed", {}, "SUCCESS"),
        ("failed", {}, "FAILURE"),
        ("error", {}, "FAILURE"),
        ("timed_out", {"error": error("too long", "timed_out")}, "FAILURE"),
        ("timed_out", {"error": error("too late", "deadline")}, "REVOKED"),
        ("cancelled", {}, "REVOKED"),
    ],
)
def test_states_are_celerys_words(
    manager: StandIn, result: AsyncResult, status: str, more: Any, word: str
) -> None:
    manager.on("GET /tasks/t1", task_out(status=status, **more))
    assert (result.state, result.status) == (word, word)
    assert result.ready() is (word in ("SUCCESS", "FAILURE", "REVOKED"))
    assert result.successful() is (word == "SUCCESS")
    assert result.failed() is (word == "FAILURE")


def test_ended_task_is_asked_for_once(manager: StandIn, result: AsyncResult) -> None:
    manager.on("GET /tasks/t1", task_out(result={"__type__": "date", "__value__": "x"}))
    assert result.ready()
    assert result.get() == result.result == {"__type__": "date", "__value__": "x"}
    assert len(manager.seen) == 1


def test_marked_result_comes_back_as_what_it_was(
    manager: StandIn, result: AsyncResult
) -> None:
    marked = [{"__type__": "date", "__value__": "2026-01-02"}]
    manager.on("GET /tasks/t1", task_out(result=marked))
    assert result.get(timeout=5, interval=0.5) == [date(2026, 1, 2)]


def test_unknown_task_is_pending_and_get_says_so(
    manager: StandIn, result: AsyncResult
) -> None:
    manager.on("GET /tasks/t1", fault("task_not_found", 404))
    assert (result.state, result.result, result.traceback) == ("PENDING", None, None)
    with pytest.raises(TaskNotFound):
        result.get()


def test_error_is_of_pythons_own_class_and_of_ours(
    manager: StandIn, result: AsyncResult
) -> None:
    told = task_out(status="failed", error=error("KeyError: 'gone'"))
    manager.on("GET /tasks/t1", told)
    with pytest.raises(KeyError) as caught:
        result.get()
    raised: Any = caught.value
    assert isinstance(raised, RemoteError)
    assert isinstance(raised, TaskFailed)
    assert str(raised) == "'gone'"
    assert (raised.exc_type, raised.traceback) == ("KeyError", "Traceback ...")
    assert result.traceback == "Traceback ..."
    assert isinstance(result.get(propagate=False), KeyError)


@pytest.mark.parametrize("name", ["CardDeclined", "SystemExit", "exec", "os.system"])
def test_other_errors_are_told_by_name_and_never_looked_up(
    manager: StandIn, result: AsyncResult, name: str
) -> None:
    manager.on("GET /tasks/t1", task_out(status="failed", error=error(f"{name}: no")))
    with pytest.raises(RemoteError, match=f"^{name}: no$") as caught:
        result.get()
    assert type(caught.value) is RemoteError


def test_revoked_task_raises_celerys_error(
    manager: StandIn, result: AsyncResult
) -> None:
    manager.on("GET /tasks/t1", task_out(status="cancelled"))
    with pytest.raises(exceptions.TaskRevokedError) as caught:
        result.get()
    assert isinstance(caught.value, TaskRevoked)


def test_task_over_its_limit_raises_celerys_error(
    manager: StandIn, result: AsyncResult
) -> None:
    manager.on("GET /tasks/t1", task_out(status="timed_out"))
    with pytest.raises(exceptions.TimeLimitExceeded, match="timed out"):
        result.get()


def test_waiting_in_vain_raises_celerys_timeout_and_pythons(
    manager: StandIn, result: AsyncResult
) -> None:
    manager.on("GET /tasks/t1", task_out(status="running"))
    with pytest.raises(exceptions.TimeoutError) as caught:
        result.get(timeout=0.01)
    assert isinstance(caught.value, ResultTimeout)
    assert isinstance(caught.value, TimeoutError)


def test_revoke_of_an_ended_task_does_nothing(
    manager: StandIn, result: AsyncResult
) -> None:
    manager.on("POST /tasks/t1/cancel", {}, fault("conflict", 409))
    result.revoke(terminate=True, signal="SIGKILL")
    result.revoke()
    result.forget()
    assert len(manager.seen) == 2


def test_adopted_app_finds_a_result_by_its_id(
    manager: StandIn, app: Celery, client: Client
) -> None:
    @app.task(shared=False)
    def add() -> None: ...

    adopt(app, client)
    manager.on("GET /tasks/t1", task_out(result=3))
    assert app.AsyncResult("t1").get() == add.AsyncResult("t1").get() == 3
    assert app.AsyncResult("t1") == add.AsyncResult("t1")
    assert len({app.AsyncResult("t1"), add.AsyncResult("t1")}) == 1
