"""The calls about nodes, workers, job types, tokens and events."""

from __future__ import annotations

from corral.client import Client
from tests.unit.client.stand_in import StandIn

WORKER = {"worker_id": "w1", "status": "online", "job_types": ["echo"], "new": 1}
NODE = {"node_id": "n1", "status": "online", "hostname": "h", "cpu_percent": 3.0}
CLUSTER = {
    "cluster_id": "c",
    "status": "healthy",
    "total_workers": 1,
    "tasks": {"queued": 2},
    "uptime_s": 3.5,
}


def test_cluster_nodes_and_workers_are_typed_and_fields_unknown_are_ignored(
    manager: StandIn, client: Client
) -> None:
    manager.on("GET /health", {"status": "healthy", "version": "1"})
    manager.on("GET /cluster/status", CLUSTER)
    manager.on("GET /nodes", {"nodes": [NODE], "total": 1})
    manager.on("GET /nodes/n1", NODE)
    manager.on("GET /workers", {"workers": [WORKER], "total": 1})
    manager.on("GET /workers/w1", WORKER)
    assert client.health().version == "1"
    assert client.cluster_status().tasks == {"queued": 2}
    assert client.nodes() == [client.node("n1")]
    assert client.workers(status="online") == [client.worker("w1")]
    assert manager.asked("GET /workers")[0].query == {"status": "online"}


def test_launch_sends_only_what_was_given(manager: StandIn, client: Client) -> None:
    manager.on("POST /workers", {"workers": [WORKER]})
    manager.on("DELETE /workers/w1", {"message": "stopped", "worker_id": "w1"})
    launched = client.launch_worker("a:B", job_types=["echo"], count=2)
    client.stop_worker(launched[0].worker_id)
    assert manager.seen[0].json == {
        "worker_class": "a:B",
        "job_types": ["echo"],
        "count": 2,
    }


def test_job_types_tokens_events_and_drain(manager: StandIn, client: Client) -> None:
    manager.on("GET /job-types", {"job_types": [{"name": "echo"}]})
    manager.on("POST /job-types", {})
    manager.on("POST /join-tokens", {"token": "corral_a_b", "uses": 1})
    manager.on("GET /events", {"events": [{"event_type": "x", "seq": 4}], "next": 4})
    manager.on("POST /cluster/drain", {"running": 3})
    client.register_job_type("echo", input_schema={"type": "object"})
    assert [kind.name for kind in client.job_types()] == ["echo"]
    assert client.join_token(ttl_s=60, uses=1).token == "corral_a_b"
    assert client.events(after=3).next == 4
    assert client.drain() == 3
