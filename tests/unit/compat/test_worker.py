"""Tasks of a Celery app in real runner processes, with no broker anywhere."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from corral.compat.call_options import pack
from corral.compat.celery import CeleryWorker
from corral.errors import WorkerError
from corral.wire.orders import AttemptOutcome
from corral.worker.supervisor.batch import OrderBatch
from corral.worker.supervisor.reports import Notes
from tests.unit.worker.conftest import Bench, item, value

WHERE = "tests.unit.compat.sample_app"
MakeBench = Callable[..., Bench]


@pytest.fixture
def worker(bench: MakeBench) -> Bench:
    return bench(app=f"{WHERE}:app")


def call(worker: Bench, name: str, *args: Any, attempt: int = 1) -> AttemptOutcome:
    order = item(pack(f"{WHERE}.{name}", args, {}), task_id="t-1")
    order.attempt = attempt
    (outcome,) = worker.run(order)
    return outcome


def test_dates_go_in_and_come_out_as_celery_marks_them(worker: Bench) -> None:
    marked = value(call(worker, "later", date(2026, 2, 28)))
    assert marked == {"__type__": "date", "__value__": "2026-03-01"}


def test_bound_task_sees_its_request(worker: Bench) -> None:
    told = value(call(worker, "who", attempt=3))
    assert told == [f"{WHERE}.who", "t-1", 2, False]


def test_custom_state_shows_as_progress(worker: Bench) -> None:
    task = item(pack(f"{WHERE}.halfway", (), {}))
    batch, seen = OrderBatch([task]), Notes()

    def look(notes: Notes) -> None:
        seen.merge(notes)
        if seen.progress:
            batch.drop(task.key)

    worker.on_tell = look
    worker.execute(batch)
    assert seen.progress == {task.key: (0.5, "HALFWAY")}


def test_failure_keeps_the_users_error_and_only_the_users_frames(
    worker: Bench,
) -> None:
    outcome = call(worker, "odd")
    assert outcome.kind == "failed"
    assert outcome.error is not None
    assert outcome.error.message == "OddError: odd indeed"
    trace = outcome.error.traceback or ""
    assert 'raise OddError(7, "odd indeed")' in trace
    assert "celery/app" not in trace


def test_hooks_and_signals_of_celery_are_called(worker: Bench) -> None:
    call(worker, "odd")
    call(worker, "stubborn")
    told = value(call(worker, "history"))
    assert told[0] == "prerun t-1"
    assert "after_return FAILURE" in told
    assert "on_retry disk" in told
    assert any(line.startswith("on_failure") for line in told)


@pytest.mark.parametrize("attempt", [1, 3])
def test_retry_fails_the_attempt_with_the_error_it_was_given(
    worker: Bench, attempt: int
) -> None:
    outcome = call(worker, "stubborn", attempt=attempt)
    assert (outcome.kind, outcome.error and outcome.error.message) == (
        "failed",
        "OSError: disk",
    )


def test_automatic_retry_fails_the_attempt_with_the_users_error(worker: Bench) -> None:
    outcome = call(worker, "auto")
    assert outcome.error is not None
    assert outcome.error.message == "KeyError: 'gone'"


def test_task_learns_that_its_retries_are_used_up(worker: Bench) -> None:
    assert value(call(worker, "resigned")) == "gave up"


def test_retry_with_other_arguments_says_that_it_cannot(worker: Bench) -> None:
    outcome = call(worker, "changed")
    assert outcome.error is not None
    assert "a task's payload never changes" in outcome.error.message


def test_ignored_task_completes_without_a_result(worker: Bench) -> None:
    assert value(call(worker, "ignored")) is None


def test_task_outside_the_chosen_ones_is_refused_by_name(bench: MakeBench) -> None:
    worker = bench(app=f"{WHERE}:app", tasks=[f"{WHERE}.later"])
    outcome = call(worker, "who")
    assert outcome.error is not None
    assert f"has no task '{WHERE}.who'" in outcome.error.message
    (bad,) = worker.run(item([1, 2]))
    assert bad.error is not None
    (worse,) = worker.run(item({"task": f"{WHERE}.later", "args": "x"}))
    assert worse.error is not None
    assert '{"args": [1, 2], "kwargs": {}}' in worse.error.message


@pytest.mark.parametrize(
    ("where", "tasks", "reason"),
    [
        ("no.such.module:app", None, "ModuleNotFoundError"),
        (f"{WHERE}:nothing", None, "no attribute 'nothing'"),
        (f"{WHERE}:NOT_AN_APP", None, "is not a Celery app"),
        (f"{WHERE}:app", ["nope"], "has no task nope; it has: "),
    ],
)
def test_app_that_cannot_be_served_says_why(
    where: str, tasks: list[str] | None, reason: str
) -> None:
    with pytest.raises(WorkerError, match=reason):
        CeleryWorker(where, tasks).start()
