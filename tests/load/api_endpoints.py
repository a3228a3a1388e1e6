"""Load on the public API, for locust: `make load` runs it against its own cluster.

By hand: `locust -f tests/load/api_endpoints.py --host http://127.0.0.1:8002`, with
the key in CORRAL_API_KEY.
"""

from __future__ import annotations

import os

from locust import HttpUser, constant, task


class Submitter(HttpUser):
    """Submits echo tasks, waits for their results, looks around now and then."""

    wait_time = constant(0)

    def on_start(self) -> None:
        key = os.environ["CORRAL_API_KEY"]
        self.client.headers["Authorization"] = f"Bearer {key}"

    @task(8)
    def echo(self) -> None:
        body = {"task_type": "echo", "parameters": {"message": "load"}}
        with self.client.post("/tasks", json=body, catch_response=True) as answer:
            if answer.status_code != 201:
                answer.failure(f"{answer.status_code}: {answer.text[:200]}")
                return
        task_id = answer.json()["task_id"]
        path = f"/tasks/{task_id}?wait=30"
        with self.client.get(path, name="/tasks/{id}", catch_response=True) as seen:
            if seen.json().get("result") != {"echoed": "load"}:
                seen.failure(seen.text[:200])

    @task(1)
    def batch(self) -> None:
        one = {"task_type": "echo", "parameters": {"message": "many"}}
        self.client.post("/tasks/batch", json={"tasks": [one] * 100})

    @task(1)
    def look(self) -> None:
        for path in ("/cluster/status", "/workers", "/nodes", "/tasks?limit=10"):
            self.client.get(path, name=path.partition("?")[0])
