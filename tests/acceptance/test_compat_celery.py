"""A small Celery project, unchanged, on a real cluster; no Celery broker anywhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from celery.exceptions import TaskRevokedError

from corral.compat.celery import RemoteError, TaskRevoked, adopt, launch
from corral.errors import TaskFailed
from examples.celery_project import main as walk
from examples.celery_project.tasks import add, app, divide, fetch, nap
from tests.acceptance.cluster import Cluster, until

pytestmark = pytest.mark.timeout(240)
WHERE = "examples.celery_project.tasks"


@pytest.fixture(scope="module")
def project(shared: Cluster) -> Iterator[Cluster]:
    """The app adopted, and one worker with two runners for it."""
    adopt(app, shared.client)
    waiting = add.delay(20, 22)
    workers = launch(f"{WHERE}:app", client=shared.client, concurrency=2)
    try:
        # Sent before there was any worker for it.
        assert waiting.get(timeout=60) == 42
        yield shared
    finally:
        for worker in workers:
            shared.client.stop_worker(worker.worker_id)


def test_delay_returns_a_result_in_celerys_words(project: Cluster) -> None:
    result = add.delay(2, y=3)
    assert result.get(timeout=60) == 5
    assert (result.state, result.successful(), result.result) == ("SUCCESS", True, 5)
    assert app.AsyncResult(result.id).get(timeout=60) == 5
    assert project.client.get_task(result.id).task_type == f"celery.{WHERE}.add"


def test_hundred_delays_all_come_back_in_order(project: Cluster) -> None:
    results = [add.delay(n, n) for n in range(100)]
    assert [r.get(timeout=60) for r in results] == [2 * n for n in range(100)]


def test_failure_raises_the_error_with_the_tasks_traceback(project: Cluster) -> None:
    result = divide.delay(1, 0)
    with pytest.raises(ZeroDivisionError) as caught:
        result.get(timeout=60)
    error = caught.value
    assert isinstance(error, RemoteError)
    assert isinstance(error, TaskFailed)
    assert "return x / y" in error.traceback
    assert (result.state, result.failed()) == ("FAILURE", True)
    # A task that never asks for a retry gets none.
    assert project.client.get_task(result.id).tries == 1


def test_retry_runs_the_task_again_until_it_succeeds(project: Cluster) -> None:
    result = fetch.delay("catalogue", good_try=1)
    told = result.get(timeout=60)
    assert told == {"name": "catalogue", "retries": 1, "id": result.id}
    detail = project.client.get_task(result.id)
    assert [a.outcome for a in detail.attempts] == ["failed"]
    assert detail.attempts[0].error is not None
    message = detail.attempts[0].error.message
    assert message == "ConnectionError: catalogue does not answer"


def test_retries_end_with_the_tasks_own_error(project: Cluster) -> None:
    fetch.max_retries = 1
    try:
        result = fetch.delay("nobody", good_try=99)
    finally:
        fetch.max_retries = 3
    with pytest.raises(ConnectionError, match="nobody does not answer"):
        result.get(timeout=60)
    assert project.client.get_task(result.id).tries == 2


def test_revoke_stops_a_running_task_and_frees_its_runner(project: Cluster) -> None:
    naps = [nap.delay(600) for _ in range(2)]
    until("both run", lambda: all(r.state == "STARTED" for r in naps))
    for result in naps:
        result.revoke()
    for result in naps:
        with pytest.raises(TaskRevokedError) as caught:
            result.get(timeout=60)
        assert isinstance(caught.value, TaskRevoked)
        assert result.state == "REVOKED"
    assert nap.delay(0).get(timeout=60) == 0


def test_countdown_and_expiry_are_kept(project: Cluster) -> None:
    late = add.apply_async((1, 1), countdown=600)
    never = add.apply_async((1, 1), countdown=600, expires=0.2)
    with pytest.raises(TaskRevoked, match="deadline"):
        never.get(timeout=60)
    assert late.state == "PENDING"
    late.revoke()


def test_plain_corral_call_reaches_a_celery_task(project: Cluster) -> None:
    told = project.corral("run", f"celery.{WHERE}.add", '{"args": [1, 2]}')
    assert (told.code, told.out) == (0, "3\n")


def test_the_example_runs_as_it_stands(
    project: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    walk.main(project.client)
    told = capsys.readouterr().out.splitlines()
    assert told == [
        "2 + 2 = 4",
        "sum of 100 tasks: 9900",
        "after a retry: 1",
        "failed as it should: division by zero",
    ]
