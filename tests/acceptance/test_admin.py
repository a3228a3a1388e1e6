"""What an administrator does to a cluster: restart workers, route, clear."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import psutil
import pytest

from corral.client import Client
from corral.errors import Forbidden, TaskNotFound, Unauthenticated
from corral.wire.workers import WorkerInfo
from tests.acceptance.cluster import ECHO, SLEEP, Cluster, until
from tests.unit.api.target_app import Target, serving


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster.start(tmp_path_factory.mktemp("admin"), [ECHO, SLEEP])
    try:
        started.serving("echo")
        started.serving("sleep")
        yield started
    finally:
        started.stop()


@pytest.fixture
def target() -> Iterator[Target]:
    with serving() as made:
        yield made


def worker(cluster: Cluster, job_type: str) -> WorkerInfo:
    return next(w for w in cluster.client.workers() if job_type in w.job_types)


def again(cluster: Cluster, before: WorkerInfo) -> WorkerInfo:
    """The worker when another process serves under its id."""

    def look() -> WorkerInfo | None:
        now = cluster.client.worker(before.worker_id)
        is_up = now.pid not in (None, before.pid) and now.status == "online"
        return now if is_up else None

    found: WorkerInfo = until("the worker is back", look, 60)
    return found


def test_a_restarted_worker_finishes_its_task_and_comes_back_under_its_id(
    cluster: Cluster,
) -> None:
    before = worker(cluster, "sleep")
    task = cluster.client.submit("sleep", {"seconds": 1.5})
    until("it runs", lambda: cluster.client.get_task(task).status == "running")
    told = cluster.client.restart_worker(before.worker_id)
    assert told.worker_id == before.worker_id
    assert told.estimated_downtime > 0
    ended = cluster.client.wait(task, 60)
    assert (ended.status, ended.attempt, ended.losses) == ("completed", 1, 0)
    after = again(cluster, before)
    assert after.name == before.name
    until("its process is gone", lambda: not psutil.pid_exists(before.pid or 0))
    assert cluster.client.run("sleep", {"seconds": 0}, wait_timeout=60) is not None


def test_a_restart_asked_for_is_carried_out_after_the_manager_died(
    cluster: Cluster,
) -> None:
    before = worker(cluster, "echo")
    agent = psutil.Process(cluster.pid("agent"))
    agent.suspend()
    try:
        cluster.client.restart_worker(before.worker_id)
        old = cluster.kill("manager")
        until("another manager", lambda: cluster.pid("manager") not in (0, old))
    finally:
        agent.resume()
    after = again(cluster, before)
    assert cluster.client.run("echo", {"message": 1}, wait_timeout=60) == {"echoed": 1}
    assert cluster.client.worker(before.worker_id).pid == after.pid


def test_the_command_line_submits_waits_restarts_and_routes(
    cluster: Cluster, target: Target
) -> None:
    submitted = cluster.corral("job", "submit", "echo", '{"message": "hi"}')
    job_id = submitted.out.strip()
    waited = cluster.corral("job", "wait", job_id)
    assert (waited.code, waited.out) == (0, f"{job_id} completed\n")
    told = json.loads(cluster.corral("job", "status", job_id, "--json").out)
    assert (told["status"], told["output"]) == ("completed", {"echoed": "hi"})
    failed = cluster.corral("job", "submit", "sleep", '{"fail": "x"}', "--wait")
    assert failed.code == 1

    words = ["--path", "/run", "--timeout", "9", "--job-type", "doubled"]
    added = cluster.corral("route", "add", "svc", target.url, *words)
    assert added.code == 0, added.err
    doubled = cluster.corral("job", "submit", "doubled", '{"n": 21}', "--wait")
    assert doubled.out == '{"doubled": 42}\n'
    rows = json.loads(cluster.corral("route", "list", "--json").out)
    assert [(r["route"], r["timeout"], r["job_type"]) for r in rows] == [
        ("svc", 60.0, None),
        ("svc/run", 9.0, "doubled"),
    ]
    assert cluster.corral("route", "remove", "svc").code == 1
    assert cluster.corral("route", "remove", "svc", "--job-type", "doubled").code == 0
    assert cluster.corral("route", "remove", "svc").code == 0


@pytest.mark.spec("E9", "B18", "B19")
def test_a_worker_is_launched_by_type_kept_alive_restarted_and_stopped(
    cluster: Cluster,
) -> None:
    added = cluster.corral(
        "worker-type", "add", "loud", ECHO.partition("=")[0], "--job-type", "shout"
    )
    assert added.code == 0, added.err
    launched = cluster.corral("worker", "launch", "loud", "--name", "megaphone")
    assert launched.code == 0, launched.err
    worker_id = launched.out.strip()
    cluster.serving("shout")
    listed = json.loads(cluster.corral("worker", "list", "--json").out)
    assert worker_id in [w["worker_id"] for w in listed]
    first = cluster.client.worker(worker_id)
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    second = again(cluster, first)
    restarted = cluster.corral("worker", "restart", worker_id)
    assert restarted.code == 0, restarted.err
    third = again(cluster, second)
    assert cluster.corral("worker", "stop", worker_id).code == 0
    until("its process is gone", lambda: not psutil.pid_exists(third.pid or 0))
    left = cluster.client.workers()
    assert worker_id not in [w.worker_id for w in left]
    assert cluster.corral("worker", "launch", "unknown").code == 1


def test_people_own_what_they_submit_until_their_key_is_revoked(
    cluster: Cluster,
) -> None:
    keys = {n: cluster.corral("key", "create", n).out.strip() for n in ("ann", "bob")}
    assert all(text.startswith("corral_") for text in keys.values())
    assert cluster.corral("share", "set", "owner=ann", "--max-running", "1").code == 0
    for name, text in keys.items():
        with Client(cluster.url, api_key=text) as client:
            task = client.submit("echo", {"message": name})
            assert client.wait(task, 60).result == {"echoed": name}
            assert client.get_task(task).owner == name
            with pytest.raises(Forbidden):
                client.keys()
    assert cluster.corral("key", "revoke", "ann").code == 0
    revoked = Client(cluster.url, api_key=keys["ann"])
    with revoked, pytest.raises(Unauthenticated):
        revoked.submit("echo", {"message": "again"})
    rows = json.loads(cluster.corral("key", "list", "--json").out)
    shown = {row["name"]: row for row in rows}
    assert (shown["ann"]["status"], shown["bob"]["status"]) == ("revoked", "valid")
    assert shown["bob"]["last_used_at"] is not None
    assert cluster.corral("share", "remove", "owner=ann").code == 0


def test_clearing_ends_what_runs_and_leaves_an_empty_working_cluster(
    cluster: Cluster,
) -> None:
    client = cluster.client
    done = client.submit("echo", {"message": 1})
    client.wait(done, 60)
    runs = client.submit("sleep", {"seconds": 60})
    until("it runs", lambda: client.get_task(runs).status == "running")
    waits = client.submit("sleep", {"seconds": 60})
    assert cluster.corral("job", "clear", "--yes").out == "cleared\n"
    for task in (done, runs, waits):
        with pytest.raises(TaskNotFound):
            client.get_task(task)
    assert client.cluster_status().tasks.get("running", 0) == 0
    assert client.worker_types() == []
    # The worker was told to stop its task: it is free long before 60 s are over.
    assert client.run("sleep", {"seconds": 0}, wait_timeout=60) is not None
    events = client.events(limit=200).events
    assert "databases_cleared" in [e.event_type for e in events]


def test_what_was_cleared_does_not_come_back_with_another_manager(
    cluster: Cluster,
) -> None:
    cluster.client.submit("sleep", {"seconds": 60})
    cluster.client.clear_databases()
    old = cluster.pid("manager")
    os.kill(old, signal.SIGKILL)
    until("another manager", lambda: cluster.pid("manager") not in (0, old))
    assert list(cluster.client.list_tasks()) == []
    assert cluster.client.run("echo", {"message": 2}, wait_timeout=60) == {"echoed": 2}
