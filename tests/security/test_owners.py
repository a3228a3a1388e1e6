"""Whose tasks are whose: what a key that may submit can do to those of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.acceptance.cluster import until
from tests.security.conftest import Attacked


@pytest.fixture
def mallory(attacked: Attacked) -> Iterator[httpx.Client]:
    """Another user, with a key that may submit as well."""
    key = attacked.cluster.client.create_key("mallory", role="submit")
    headers = {"Authorization": f"Bearer {key.key}"}
    with httpx.Client(base_url=attacked.cluster.url, headers=headers) as http:
        yield http
    attacked.cluster.client.revoke_key("mallory")


def submitted(http: httpx.Client, **task: Any) -> str:
    task_id: str = http.post("/tasks", json=task).raise_for_status().json()["task_id"]
    return task_id


def waiting(http: httpx.Client) -> str:
    later = {"task_type": "echo", "parameters": {}, "run_after": 3600}
    return submitted(http, **later)


def status(http: httpx.Client, task_id: str) -> str:
    told: str = http.get(f"/tasks/{task_id}").json()["status"]
    return told


def test_h6_a_user_cannot_cancel_a_task_of_another(
    attacked: Attacked, mallory: httpx.Client
) -> None:
    with attacked.http("submit") as alice, attacked.http("operate") as operator:
        task_id = waiting(alice)
        answer = mallory.delete(f"/tasks/{task_id}")
        assert answer.status_code == 403
        assert "not yours" in answer.json()["error"]["message"]
        stream = f"/tasks/{task_id}/stream"
        gone = mallory.get(stream, params={"cancel_on_disconnect": True})
        assert gone.status_code == 403
        told = mallory.post("/tasks/cancel", params={"status": "queued,running"}).json()
        assert (told["done"], told["refused"]) == (0, 0)
        assert status(alice, task_id) == "queued"
        own = waiting(mallory)
        mallory.delete(f"/tasks/{own}").raise_for_status()
        operator.delete(f"/tasks/{task_id}").raise_for_status()


def test_h6_a_user_cannot_run_a_task_of_another_again(
    attacked: Attacked, mallory: httpx.Client
) -> None:
    with attacked.http("submit") as alice:
        task_id = submitted(alice, task_type="echo", parameters={"message": "hi"})
        until("it ends", lambda: status(alice, task_id) == "completed")
        assert mallory.post(f"/tasks/{task_id}/requeue").status_code == 403
        told = mallory.post("/tasks/requeue", params={"status": "completed"}).json()
        assert (told["done"], told["refused"]) == (0, 0)
        job = {"job_id": task_id}
        assert mallory.post("/requeue_from_dlq", json=job).status_code == 403
        assert mallory.post("/discard_from_dlq", json=job).status_code == 403
        alice.post(f"/tasks/{task_id}/requeue").raise_for_status()
