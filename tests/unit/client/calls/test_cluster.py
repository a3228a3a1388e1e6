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


def test_apps_and_their_routes(manager: StandIn, client: Client) -> None:
    app = {"name": "a", "url": "http://h", "routes": [{"path": "/x", "timeout": 5}]}
    manager.on("GET /apps", {"apps": [app]})
    manager.on("POST /apps", app)
    manager.on("DELETE /apps/a", {})
    manager.on("POST /apps/a/routes", app)
    manager.on("DELETE /apps/a/routes", app)
    manager.on("POST /register_job_to_endpoint", None)
    assert client.register_app("a", "http://h", concurrency=2) == client.apps()[0]
    assert client.add_route("a", "/x", 5).routes[0].timeout == 5
    client.remove_route("a", "/x")
    client.target_job_type("kind", "a/x")
    client.remove_app("a")
    assert manager.seen[0].json == {"name": "a", "url": "http://h", "concurrency": 2}
    assert manager.asked("DELETE /apps/a/routes")[0].query == {"path": "/x"}


def test_restart_tells_seconds(manager: StandIn, client: Client) -> None:
    told = {"message": "m", "worker_id": "w1", "estimated_downtime": 1.5}
    manager.on("POST /workers/w1/restart", told)
    assert client.restart_worker("w1").estimated_downtime == 1.5


def test_job_types_tokens_events_and_drain(manager: StandIn, client: Client) -> None:
    manager.on("GET /job-types", {"job_types": [{"name": "echo"}]})
    manager.on("POST /job-types", {})
    manager.on("POST /join-tokens", {"token": "corral_a_b", "uses": 1})
    manager.on("GET /events", {"events": [{"event_type": "x", "seq": 4}], "next": 4})
    manager.on("POST /cluster/drain", {"running": 3})
    manager.on("PATCH /job-types/echo", {})
    client.register_job_type("echo", input_schema={"type": "object"})
    client.set_batch_limit("echo", 16)
    assert manager.seen[-1].json == {"batch_limit": 16}
    client.set_cache_ttl("echo", 60.0)
    assert manager.seen[-1].json == {"cache_ttl_s": 60.0}
    manager.on("DELETE /job-types/echo/cache", {"forgotten": 7})
    assert client.clear_cache("echo") == 7
    assert [kind.name for kind in client.job_types()] == ["echo"]
    assert client.join_token(ttl_s=60, uses=1).token == "corral_a_b"
    assert client.events(after=3).next == 4
    assert client.drain() == 3
