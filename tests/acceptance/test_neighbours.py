"""A gateway and a task service around a real cluster, the service with its bad days."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.acceptance.cluster import ECHO, SLEEP, Cluster, until
from tests.task_service import TaskServiceStandIn, task_service

KEY = "the-services-own-key"


@pytest.fixture
def service() -> Iterator[TaskServiceStandIn]:
    with task_service() as made:
        yield made


@pytest.fixture
def cluster(tmp_path: Path, service: TaskServiceStandIn) -> Iterator[Cluster]:
    started = Cluster.start(
        tmp_path / "home",
        [ECHO, SLEEP, SLEEP],
        TASK_MANAGER_URL=service.url,
        CORRAL_TASK_MANAGER_KEY=KEY,
    )
    try:
        started.serving("echo")
        started.serving("sleep", 2)
        yield started
    finally:
        started.stop()


def ask(cluster: Cluster, path: str) -> httpx.Response:
    key = (cluster.home / "admin.key").read_text().strip()
    return httpx.get(f"{cluster.url}{path}", headers={"Authorization": f"Bearer {key}"})


@pytest.mark.spec("A26")
def test_a_gateway_finds_what_it_reads(shared: Cluster) -> None:
    assert httpx.get(f"{shared.url}/health").json()["status"] == "healthy"
    status = ask(shared, "/cluster/status").json()
    assert status["active_workers"] == status["total_workers"] == 2

    def second_idle() -> list[dict[str, str]]:
        page = ask(shared, "/workers?status=online&limit=1&offset=1").json()
        found: list[dict[str, str]] = page["workers"]
        return found if page["total"] == 2 else []

    # Another test of this cluster may just have kept one of them busy.
    (worker,) = until("both are idle", second_idle)
    detail = ask(shared, f"/workers/{worker['worker_id']}").json()
    assert detail["system_info"]["cpu"] >= 1
    assert detail["system_info"]["os"] == "Linux"
    assert ask(shared, "/workers/w-none").json()["error"]["code"] == "worker_not_found"


@pytest.mark.spec("A27")
def test_a_task_service_sees_room_hands_over_tasks_and_learns_what_became_of_them(
    cluster: Cluster, service: TaskServiceStandIn
) -> None:
    def idle() -> list[str]:
        found = ask(cluster, "/workers?status=online").json()["workers"]
        return [w["worker_id"] for w in found if "sleep" in w["job_types"]]

    room = until("both are free", lambda: idle() if len(idle()) == 2 else None)
    client = cluster.client
    ids = [f"theirs-{number}" for number in range(2)]
    for task_id in ids:
        client.submit("sleep", {"seconds": 3}, task_id=task_id)
    service.await_status("running", *ids)
    assert {service.last(task_id)["worker_id"] for task_id in ids} == set(room)
    bad = client.submit("sleep", {"seconds": "x"}).task_id
    service.await_status("completed", *ids)
    service.await_status("failed", bad)
    assert service.last(bad)["error"]["kind"]
    for task_id in ids:
        assert service.statuses(task_id)[-2:] == ["running", "completed"]
        assert service.last(task_id)["result"] == {"slept": 3.0}
    assert service.keys == {f"Bearer {KEY}"}


def test_no_final_status_is_lost_when_the_service_is_down_and_the_manager_dies(
    cluster: Cluster, service: TaskServiceStandIn
) -> None:
    client = cluster.client
    first = client.submit("echo", {"message": "x"}).task_id
    service.await_status("completed", first)
    service.stop()
    ids = client.submit_many([("echo", {"message": str(n)}) for n in range(100)])
    assert all(t.status == "completed" for t in client.wait_many(ids, timeout=60))
    old = cluster.kill("manager")
    until("a new manager", lambda: cluster.pid("manager") not in (0, old), 60)
    service.start()
    service.await_status("completed", *ids, timeout_s=60)
    assert service.statuses(first).count("completed") <= 2
    after = client.submit("echo", {"message": "y"}).task_id
    service.await_status("completed", after)
