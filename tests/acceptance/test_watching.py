"""Looking into a live cluster with the tools of others: Flower, profilers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.cluster import ECHO, Cluster, free_port, until

WHO = ("me", "secret")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("watching")
    started = Cluster.start(home, [ECHO], CORRAL_WORKER_SEND_TASK_EVENTS="true")
    try:
        started.serving("echo")
        yield started
    finally:
        started.stop()


def celery(cluster: Cluster, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "corral.engine", *arguments],
        env=cluster.environment,
        cwd=cluster.home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture
def by_hand(cluster: Cluster) -> Iterator[str]:
    """A worker that somebody starts with Celery's own command."""
    name = "byhand@corral"
    process = celery(cluster, "worker", "-n", name, "-P", "solo", "-E")
    try:
        yield name
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture
def flower(cluster: Cluster) -> Iterator[httpx.Client]:
    port = free_port()
    where = ("--address=127.0.0.1", f"--port={port}")
    process = celery(cluster, "flower", *where, f"--basic-auth={':'.join(WHO)}")
    url = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(base_url=url, auth=WHO, timeout=60) as client:
            yield client
    finally:
        process.terminate()
        process.communicate(timeout=60)


def ask(flower: httpx.Client, path: str) -> dict[str, Any]:
    """What Flower answers; nothing while it is starting."""
    try:
        answer = flower.get(path)
    except httpx.TransportError:
        return {}
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


@pytest.mark.spec("B2", "B10", "D8")
def test_flower_and_celery_see_the_workers_and_what_they_do(
    cluster: Cluster, flower: httpx.Client, by_hand: str
) -> None:
    (worker,) = cluster.client.workers()
    name = f"{worker.worker_id}@corral"
    inspect = celery(cluster, "inspect", "active", "-t", "60", "-d", name)
    until("it is seen", lambda: ask(flower, "/api/workers?status=1").get(name))

    cluster.client.run("echo", {"message": "hi"})

    def order() -> Any:
        found = ask(flower, "/api/tasks?taskname=corral.order").values()
        return [t for t in found if (t["worker"], t["state"]) == (name, "SUCCESS")]

    assert until("its order is seen", order)

    def answers() -> Any:
        # It gives a worker a second to answer, which may be short here.
        told = ask(flower, f"/api/workers?refresh=1&workername={name}").get(name, {})
        return told if {"active_queues", "stats"} <= told.keys() else None

    told = until("it answers", answers)
    assert told["active_queues"][0]["name"].endswith(worker.worker_id)
    # Who may ask a worker does not learn how it reaches Redis.
    assert "node-" not in str(told["stats"]["broker"])
    said, _ = inspect.communicate(timeout=60)
    assert f"{name}: OK" in said
    until("the other, too", lambda: ask(flower, "/api/workers?status=1").get(by_hand))


@pytest.mark.spec("C46")
def test_a_profile_is_a_file_of_its_task_and_the_result_is_the_same(
    cluster: Cluster, tmp_path: Path
) -> None:
    payload = '{"message": "hi", "delay": 0.2}'
    told = cluster.corral("profile", "echo", payload, "--to", str(tmp_path))
    assert told.code == 0, told
    assert "EchoWorker._run" in told.out
    assert {p.name for p in tmp_path.iterdir()} == {"profile.txt", "profile.html"}

    ran = cluster.corral("run", "echo", payload, "--profile", "--json")
    assert ran.code == 0, ran
    task = json.loads(ran.out)
    assert task["result"] == {"echoed": "hi"}
    listed = cluster.corral("artifacts", "list", task["task_id"])
    assert "profile.html" in listed.out

    heap = cluster.corral("profile", "echo", payload, "--heap")
    assert heap.code == 0, heap
    assert "still held at its end" in heap.out

    failed = cluster.corral("profile", "echo", "[]", "--json")
    assert failed.code == 1
    assert json.loads(failed.out)["files"] == ["profile.html", "profile.txt"]
    refused = cluster.corral("profile", "nobody-serves-this", timeout_s=60)
    assert refused.code == 1
    assert refused.err.startswith("Error: ")
