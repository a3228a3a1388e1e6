"""Plain Celery clients on a real cluster: real Redis, real Celery, everybody killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chain
from celery.exceptions import (
    NotRegistered,
    TaskRevokedError,
    TimeLimitExceeded,
)
from celery.result import AsyncResult
from kombu.exceptions import ContentDisallowed

from corral.compat.broker import MARK, PENDING, REFUSED
from corral.compat.celery import launch
from corral.errors import TaskNotFound, Unavailable
from tests.acceptance.cluster import ECHO, ROOT, Cluster, until
from tests.unit.worker.supervised import Broker

pytestmark = pytest.mark.timeout(240)
WHERE = "examples.celery_project.tasks"
SAMPLE = "tests.unit.compat.sample_app"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp("b"))
    yield made
    made.client.close()
    made.kill()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Redis of its own for results, so that it can be away alone."""
    made = Broker(tmp_path_factory.mktemp("r"))
    yield made
    made.client.close()
    made.kill()


@pytest.fixture(scope="module")
def cluster(
    broker: Broker, results: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    started = Cluster.start(
        tmp_path_factory.mktemp("ingress"),
        [ECHO],
        "--celery-ingress",
        CELERY_BROKER_URL=broker.url,
        CELERY_RESULT_BACKEND=results.url,
        CORRAL_CELERY_QUEUES="celery,gpu_queue",
        CORRAL_CELERY_TASKS=f"shop.echo=echo,{WHERE}.add",
        CORRAL_CELERY_TRACK_STARTED="true",
    )
    try:
        launch(f"{WHERE}:app", client=started.client, concurrency=2)
        # Named: Celery shares the tasks of one app with all others of a process.
        mine = [f"{SAMPLE}.{name}" for name in ("later", "odd", "write")]
        launch(f"{SAMPLE}:app", tasks=mine, client=started.client)
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def app(cluster: Cluster, broker: Broker, results: Broker) -> Iterator[Celery]:
    made = Celery("plain", broker=broker.url, backend=results.url, set_as_current=False)
    yield made
    made.close()


def add(app: Celery, x: int, y: int, **options: Any) -> AsyncResult:
    return app.send_task(f"{WHERE}.add", (x, y), **options)


def live_pid(cluster: Cluster, child: str) -> int:
    """Never 0, which would mean ourselves."""
    pid: int = until(f"{child} runs", lambda: cluster.pid(child))
    return pid


def kill(cluster: Cluster, child: str) -> None:
    def is_killed() -> bool:
        try:
            os.kill(live_pid(cluster, child), signal.SIGKILL)
        except ProcessLookupError:  # its successor is not noted yet
            return False
        return True

    until(f"{child} is killed", is_killed)


@pytest.mark.spec("B3", "B11", "B24", "B26")
def test_plain_client_in_its_own_process_gets_its_results(
    cluster: Cluster, broker: Broker, results: Broker
) -> None:
    """The names are those the gateway of the documents sends."""
    environment = {
        **os.environ,
        "CELERY_BROKER_URL": broker.url,
        "CELERY_RESULT_BACKEND": results.url,
        "PYTHONPATH": str(ROOT),
    }
    told = subprocess.run(
        [sys.executable, "-m", "examples.celery_project.client"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert told.stdout.splitlines() == [
        "generated: a horse,",
        "sum of 50 tasks: 2450",
        "failed as it should: division by zero",
        "Corral loaded here: False",
    ], told.stderr


def test_task_keeps_its_id_and_shows_where_it_came_from(
    cluster: Cluster, app: Celery
) -> None:
    sent = add(app, 1, y := 2, task_id="chosen-by-the-client", priority=6)
    assert sent.get(timeout=60) == 1 + y
    task = cluster.client.get_task("chosen-by-the-client")
    assert task.task_type == f"celery.{WHERE}.add"
    assert (task.priority, task.labels["celery-queue"]) == (-6, "celery")
    # Sent again, it is the same task, and the client is answered again.
    app.backend.client.delete("celery-task-meta-chosen-by-the-client")
    again = add(app, 5, 5, task_id="chosen-by-the-client")
    assert again.get(timeout=60) == 3


@pytest.mark.spec("B12", "C8")
def test_every_end_reaches_the_result_backend_in_celerys_words(
    cluster: Cluster, app: Celery
) -> None:
    revoked = app.send_task("nap", (600,), queue="gpu_queue")
    until("it is told as started", lambda: revoked.state == "STARTED")
    slow = app.send_task("nap", (600,), time_limit=1)
    late = add(app, 1, 1, countdown=600, expires=1)
    cluster.client.cancel(revoked.id)
    with pytest.raises(TaskRevokedError):
        revoked.get(timeout=60)
    with pytest.raises(TimeLimitExceeded):
        slow.get(timeout=60)
    with pytest.raises(TaskRevokedError, match="deadline"):
        late.get(timeout=60)
    assert (revoked.state, slow.state, late.state) == ("REVOKED", "FAILURE", "REVOKED")


def test_values_and_errors_come_back_as_they_were(app: Celery) -> None:
    told = app.send_task(f"{SAMPLE}.later", (date(2026, 2, 28),), {"days": 1})
    assert told.get(timeout=60) == date(2026, 3, 1)
    odd = app.send_task(f"{SAMPLE}.odd")
    error = odd.get(timeout=60, propagate=False)
    # What Celery itself makes of a class that one argument cannot rebuild.
    assert str(error) == f"<class '{SAMPLE}.OddError'>(['odd indeed'])"
    assert "raise OddError" in odd.traceback


def test_old_protocol_and_types_of_ones_own_are_taken(
    cluster: Cluster, broker: Broker, results: Broker
) -> None:
    old = Celery("old", broker=broker.url, backend=results.url, set_as_current=False)
    old.conf.task_protocol = 1
    try:
        assert add(old, 3, 4).get(timeout=60) == 7
        told = old.send_task("shop.echo", kwargs={"message": "hi"})
        assert told.get(timeout=60) == {"echoed": "hi"}
        told = old.send_task("shop.echo", (1, 2), {"message": "hi"})
        assert told.get(timeout=60) == {"echoed": "hi"}
        task = cluster.client.get_task(told.id)
        assert (task.task_type, task.status) == ("echo", "completed")
        assert task.parameters == {"args": [1, 2], "message": "hi"}
    finally:
        old.close()


def test_what_cannot_be_taken_is_answered_and_kept(
    cluster: Cluster, app: Celery, broker: Broker
) -> None:
    before = broker.client.llen(REFUSED)
    nobody = app.send_task("nobody.serves.this")
    pickled = add(app, 1, 1, serializer="pickle")
    linked = chain(
        app.signature(f"{WHERE}.add", (1, 1)), app.signature(f"{WHERE}.add", (1,))
    ).apply_async()
    large = app.send_task("shop.echo", kwargs={"text": "x" * (2 << 20)})
    strange = add(app, 1, 1, task_id="no id of ours")
    broker.client.lpush("celery", b"\xff not a message at all")
    good = add(app, 20, 22)
    assert good.get(timeout=60) == 42
    with pytest.raises(NotRegistered, match="nobody"):
        nobody.get(timeout=60)
    with pytest.raises(ContentDisallowed, match="application/x-python-serialize"):
        pickled.get(timeout=60)
    with pytest.raises(NotImplementedError, match="chain"):
        linked.parent.get(timeout=60)
    with pytest.raises(ValueError, match="bytes"):
        large.get(timeout=60)
    with pytest.raises(ValueError, match="task_id"):
        strange.get(timeout=60)
    assert broker.client.llen(REFUSED) == before + 6
    # Kept as it came: once somebody serves the type, it can be sent again.
    kept = broker.client.lrange(REFUSED, 0, -1)
    assert any(nobody.id.encode() in raw for raw in kept)
    cluster.client.register_job_type("celery.nobody.serves.this")
    for _ in range(broker.client.llen(REFUSED)):
        broker.client.rpoplpush(REFUSED, "celery")
    until("it waits now", lambda: _is_queued(cluster, nobody.id))
    cluster.client.cancel(nobody.id)


def _is_queued(cluster: Cluster, task_id: str) -> bool:
    label = "celery-queue:celery"
    waiting = cluster.client.list_tasks(status="queued", label=label)
    return any(task.task_id == task_id for task in waiting)


def test_killing_the_ingress_in_mid_stream_loses_and_repeats_nothing(
    cluster: Cluster, app: Celery, tmp_path: Path
) -> None:
    book, sent = tmp_path / "book", []
    for first in range(0, 1000, 200):
        part = [
            app.send_task(f"{SAMPLE}.write", (str(book), n))
            for n in range(first, first + 200)
        ]
        _known(cluster, part[0].id)
        kill(cluster, "ingress")
        sent += part
    assert [r.get(timeout=90) for r in sent] == list(range(1000))
    ran = Counter(book.read_text().split())
    assert ran == Counter({str(n): 1 for n in range(1000)})


def test_results_outlive_the_death_of_manager_and_ingress(
    cluster: Cluster, app: Celery, broker: Broker
) -> None:
    naps = [app.send_task("nap", (4,)) for _ in range(2)]
    until("they run", lambda: all(_is_running(cluster, nap.id) for nap in naps))
    kill(cluster, "manager")
    kill(cluster, "ingress")
    sent = [add(app, n, n) for n in range(300)]
    assert [r.get(timeout=90) for r in sent] == [2 * n for n in range(300)]
    assert [r.get(timeout=90) for r in naps] == [4, 4]
    until("nothing is owed", lambda: not broker.client.scard(PENDING))


def _is_running(cluster: Cluster, task_id: str) -> bool:
    try:
        return cluster.client.get_task(task_id).status == "running"
    except TaskNotFound:
        return False


def test_result_waits_for_a_backend_that_is_away(
    cluster: Cluster, app: Celery, broker: Broker, results: Broker
) -> None:
    results.kill()
    try:
        # A client with a backend would not even send while that is away.
        with Celery("sender", broker=broker.url, set_as_current=False) as sender:
            sent = add(sender, 4, 4)
        _completed(cluster, sent.id)
        kill(cluster, "ingress")
    finally:
        results.start()
    until("it is there", lambda: results.client.exists(f"celery-task-meta-{sent.id}"))
    assert AsyncResult(sent.id, app=app).get(timeout=60) == 8


def test_emptied_broker_costs_no_result_of_a_task_that_was_stored(
    cluster: Cluster, app: Celery, broker: Broker
) -> None:
    sent = app.send_task("nap", (3,))
    _known(cluster, sent.id)
    until("it is owed", lambda: broker.client.sismember(PENDING, sent.id))
    ingress = live_pid(cluster, "ingress")
    os.kill(ingress, signal.SIGSTOP)
    broker.client.flushall()
    os.kill(ingress, signal.SIGKILL)
    assert sent.get(timeout=60) == 3
    assert broker.client.exists(MARK)


def _known(cluster: Cluster, task_id: str) -> None:
    until("it is stored", lambda: not cluster.client.collect([task_id]).unknown)


def _completed(cluster: Cluster, task_id: str) -> None:
    def is_done() -> bool:
        try:
            return bool(cluster.client.collect([task_id], wait_s=1).tasks)
        except Unavailable:
            return False

    until("it has completed", is_done)
