"""Names and addresses that existing documents promise, on a real cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from corral.client import Client
from corral.errors import NodeNotFound, TaskNotFound, Unauthenticated, WorkerNotFound
from tests.acceptance.cluster import ECHO, SLEEP, Cluster, free_port, until

KEY = "your-development-api-key"


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Set up by the documents' variables alone: no flag, no name of ours."""
    port = free_port()
    cluster = Cluster.start(
        tmp_path_factory.mktemp("documented"),
        [ECHO, SLEEP],
        port=port,
        is_port_flag=False,
        API_HOST="127.0.0.1",
        API_PORT=str(port),
        API_KEY=KEY,
        LOG_LEVEL="DEBUG",
        LOG_FORMAT="text",
        DEBUG="true",
        WORKER_REGISTRATION_TIMEOUT="2",
        TASK_TIMEOUT="3",
        WORKER_CONCURRENCY="2",
    )
    try:
        cluster.serving("echo")
        cluster.serving("sleep")
        yield cluster
    finally:
        cluster.stop()


def curl(cluster: Cluster, path: str, key: str | None = KEY) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.get(f"{cluster.url}{path}", headers=headers)


@pytest.mark.spec("C1", "C2", "C3", "C4", "D3")
def test_the_documented_addresses_answer_the_documented_key(
    documented: Cluster,
) -> None:
    assert curl(documented, "/health", None).json()["status"] == "healthy"
    status = curl(documented, "/cluster/status").json()
    assert (status["status"], status["active_workers"]) == ("operational", 2)
    workers = curl(documented, "/workers").json()
    assert (workers["total"], workers["online"]) == (2, 2)
    assert curl(documented, "/workers", "another-key").status_code == 401
    assert "/tasks" in curl(documented, "/openapi.json").json()["paths"]


@pytest.mark.spec("C7", "C8")
def test_each_task_reaches_a_worker_of_its_type_and_its_result_stays(
    documented: Cluster,
) -> None:
    client = Client(documented.url, KEY)
    serves = {w.worker_id: w.job_types for w in client.workers()}
    ids = [client.submit("echo", {"message": "x"}).task_id for _ in range(5)]
    ids += [client.submit("sleep", {"seconds": 0}).task_id for _ in range(5)]
    for task in client.wait_many(ids, timeout=60):
        assert serves[task.worker_id or ""] == [task.task_type]
        assert curl(documented, f"/tasks/{task.task_id}").json()["result"]
    client.close()


@pytest.mark.spec("D5", "D9")
def test_logs_follow_the_documented_level_and_format(
    documented: Cluster, shared: Cluster
) -> None:
    with Client(documented.url, KEY) as client:
        client.run("echo", {"message": "x"})
    text = (documented.home / "logs" / "manager.log").read_text()
    assert "[debug" in text
    assert "order_sent" in text
    first = (shared.home / "logs" / "manager.log").read_text().splitlines()[0]
    assert {"event", "level", "timestamp"} <= set(json.loads(first))


@pytest.mark.spec("B15")
def test_workers_run_as_many_tasks_at_once_as_documented(documented: Cluster) -> None:
    with Client(documented.url, KEY) as client:
        assert {w.concurrency for w in client.workers()} == {2}
        ids = client.submit_many([("sleep", {"seconds": 1.0})] * 2)
        first, second = client.wait_many(ids, timeout=60)
    assert first.started_at is not None
    assert second.completed_at is not None
    assert first.completed_at is not None
    assert second.started_at is not None
    assert first.started_at < second.completed_at
    assert second.started_at < first.completed_at


@pytest.mark.spec("C32")
def test_a_task_that_says_nothing_has_the_documented_timeout(
    documented: Cluster,
) -> None:
    with Client(documented.url, KEY) as client:
        begun = time.monotonic()
        ended = client.wait(client.submit("sleep", {"hang": True}))
    assert ended.status == "timed_out"
    assert 3.0 <= time.monotonic() - begun < 30.0


@pytest.mark.spec("D14")
def test_what_is_not_there_raises_an_exception_of_its_own(shared: Cluster) -> None:
    client = shared.client
    with pytest.raises(WorkerNotFound, match="no worker 'w-none'"):
        client.worker("w-none")
    with pytest.raises(TaskNotFound, match="no task 'none'"):
        client.get_task("none")
    with pytest.raises(NodeNotFound, match="no node 'n-none'"):
        client.node("n-none")
    with Client(shared.url, "corral_no_key") as other, pytest.raises(Unauthenticated):
        other.workers()


@pytest.mark.spec("D4")
def test_a_worker_that_never_registers_is_shown_as_broken(
    documented: Cluster,
) -> None:
    client = Client(documented.url, KEY)
    node = Node(documented, client.join_token(uses=1).token)
    worker = node.register("never")

    def is_broken() -> Any:
        node.beat()
        return client.worker(worker).status == "error"

    begun = time.monotonic()
    until("the worker is given up on", is_broken)
    assert time.monotonic() - begun >= 1.9
    assert "did not register within 2 s" in (client.worker(worker).error or "")
    client.close()


class Node:
    """An agent that beats, but starts no worker."""

    def __init__(self, cluster: Cluster, token: str) -> None:
        self._url = cluster.url
        joined = self._post("/nodes/join", token, {"hostname": "lazy"})
        self._id, self._key = joined["node_id"], joined["key"]
        self._epoch = 0

    def _post(self, path: str, key: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {key}"}
        answer = httpx.post(f"{self._url}{path}", headers=headers, json=body)
        told: dict[str, Any] = answer.raise_for_status().json()
        return told

    def register(self, name: str) -> str:
        worker = {"name": name, "worker_class": "no.such:Class", "job_types": [name]}
        body = {"hostname": "lazy", "workers": [worker]}
        told = self._post(f"/nodes/{self._id}/register", self._key, body)
        self._epoch = told["epoch"]
        worker_id: str = told["desired"]["workers"][0]["worker_id"]
        return worker_id

    def beat(self) -> None:
        body = {"epoch": self._epoch, "workers": []}
        self._post(f"/nodes/{self._id}/beat", self._key, body)
