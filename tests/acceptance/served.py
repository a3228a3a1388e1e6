"""Asks a cluster's one inference worker on each face, and looks at what it holds."""

from __future__ import annotations

import json
from typing import Any

import httpx

from corral.wire.workers import WorkerInfo
from tests.acceptance.cluster import Cluster, until


def key(cluster: Cluster) -> str:
    return (cluster.home / "admin.key").read_text().strip()


def server(cluster: Cluster) -> WorkerInfo:
    (found,) = [w for w in cluster.client.workers() if "generate" in w.job_types]
    return found


def runner(cluster: Cluster) -> int:
    """The pid of its one runner, once it has one."""

    def only() -> int:
        pids = cluster.runner_pids(server(cluster).pid or 0)
        return pids[0] if len(pids) == 1 else 0

    return int(until("there is one runner", only))


def loads(cluster: Cluster) -> int:
    return int(server(cluster).performance_metrics["model_loads"])


def sizes(cluster: Cluster) -> dict[str, float]:
    """MB of the models in memory, as the cluster tells it."""
    return {
        str(model.name): float(model.memory_usage or 0.0)
        for worker in cluster.client.models()
        for model in worker.models
        if model.status == "loaded"
    }


def taken_mb(cluster: Cluster) -> float:
    """What is written down as taken of the card at this moment."""
    (ledger,) = (cluster.home / "agents").glob("*/simulated")
    total = 0.0
    for file in ledger.glob("SIM-*/*"):
        if file.suffix != ".draft":
            try:
                total += float(file.read_text())
            except FileNotFoundError:
                continue
    return total


def rest(cluster: Cluster, kind: str, model: str, payload: Any) -> Any:
    headers = {"Authorization": f"Bearer {key(cluster)}"}
    with httpx.Client(base_url=cluster.url, headers=headers, timeout=90) as http:
        body = {"task_type": kind, "parameters": payload, "model_name": model}
        told = http.post("/tasks", params={"wait": 60}, json=body).json()
        while told["status"] in ("queued", "running"):
            told = http.get(f"/tasks/{told['task_id']}", params={"wait": 60}).json()
    assert told["status"] == "completed", told
    return told["result"]


def python(cluster: Cluster, kind: str, model: str, payload: Any) -> Any:
    return cluster.client.run(kind, payload, model_name=model, timeout=120)


def cli(cluster: Cluster, kind: str, model: str, payload: Any) -> Any:
    words = ("run", kind, json.dumps(payload), "--model", model)
    told = cluster.corral(*words, timeout_s=120)
    assert told.code == 0, told
    return json.loads(told.out)
