"""Every route of the application, and a request that reaches it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute, APIWebSocketRoute

from corral.core.access.key import Scope

OPEN = {("GET", "/health"), ("GET", "/ui/session"), ("GET", "/nodes/join/proof")}
# What a route asks for; those not named here ask for `read`.
SCOPES = {
    ("POST", "/tasks"): Scope.SUBMIT,
    ("POST", "/tasks/batch"): Scope.SUBMIT,
    ("POST", "/tasks/cancel"): Scope.SUBMIT,
    ("POST", "/tasks/requeue"): Scope.SUBMIT,
    ("DELETE", "/tasks/{task_id}"): Scope.SUBMIT,
    ("POST", "/tasks/{task_id}/cancel"): Scope.SUBMIT,
    ("POST", "/tasks/{task_id}/requeue"): Scope.SUBMIT,
    ("POST", "/v1/chat/completions"): Scope.SUBMIT,
    ("POST", "/v1/completions"): Scope.SUBMIT,
    ("POST", "/v1/embeddings"): Scope.SUBMIT,
    ("POST", "/tasks/{task_id}/exec"): Scope.OPERATE,
    ("GET", "/tasks/{task_id}/exec/{exec_id}"): Scope.OPERATE,
    ("DELETE", "/tasks/{task_id}/exec/{exec_id}"): Scope.OPERATE,
    ("POST", "/workers"): Scope.OPERATE,
    ("DELETE", "/workers/{worker_id}"): Scope.OPERATE,
    ("POST", "/job-types"): Scope.OPERATE,
    ("PUT", "/objects/{digest}"): Scope.SUBMIT,
    ("POST", "/objects"): Scope.SUBMIT,
    ("POST", "/objects/missing"): Scope.SUBMIT,
    ("PATCH", "/job-types/{name}"): Scope.OPERATE,
    ("DELETE", "/job-types/{name}"): Scope.OPERATE,
    ("DELETE", "/job-types/{name}/queue"): Scope.OPERATE,
    ("DELETE", "/job-types/{name}/cache"): Scope.OPERATE,
    ("POST", "/job-types/{name}/pause"): Scope.OPERATE,
    ("POST", "/job-types/{name}/resume"): Scope.OPERATE,
    ("PUT", "/shares"): Scope.ADMIN,
    ("DELETE", "/shares/{name}"): Scope.ADMIN,
    ("POST", "/apps"): Scope.ADMIN,
    ("DELETE", "/apps/{name}"): Scope.ADMIN,
    ("POST", "/submit_job"): Scope.SUBMIT,
    ("POST", "/requeue_from_dlq"): Scope.SUBMIT,
    ("POST", "/discard_from_dlq"): Scope.SUBMIT,
    ("POST", "/worker_alert_started_job"): Scope.OPERATE,
    ("POST", "/worker_alert_completed_job"): Scope.OPERATE,
    ("POST", "/register_worker_type"): Scope.OPERATE,
    ("DELETE", "/worker-types/{name}"): Scope.OPERATE,
    ("PUT", "/worker-types/{name}/scaling"): Scope.OPERATE,
    ("POST", "/register_job_schema_to_worker_type"): Scope.OPERATE,
    ("POST", "/register_job_to_worker"): Scope.OPERATE,
    ("POST", "/register_node"): Scope.OPERATE,
    ("POST", "/launch_worker"): Scope.OPERATE,
    ("POST", "/run_on_worker"): Scope.SUBMIT,
    ("POST", "/shutdown_worker"): Scope.OPERATE,
    ("POST", "/shutdown_worker_by_id"): Scope.OPERATE,
    ("POST", "/shutdown_worker_by_port"): Scope.OPERATE,
    ("POST", "/shutdown_all_workers"): Scope.OPERATE,
    ("POST", "/shutdown_node"): Scope.OPERATE,
    ("POST", "/shutdown"): Scope.ADMIN,
    ("POST", "/register_app"): Scope.ADMIN,
    ("POST", "/register_job_to_endpoint"): Scope.OPERATE,
    ("POST", "/clear_job_schema_queue"): Scope.OPERATE,
    ("POST", "/clear_databases"): Scope.ADMIN,
    ("POST", "/workers/{worker_id}/restart"): Scope.OPERATE,
    ("POST", "/models"): Scope.OPERATE,
    ("DELETE", "/models/{name}"): Scope.OPERATE,
    ("POST", "/models/{name}/pull"): Scope.OPERATE,
    ("POST", "/models/assign"): Scope.OPERATE,
    ("POST", "/models/unload"): Scope.OPERATE,
    ("POST", "/apps/{name}/routes"): Scope.ADMIN,
    ("DELETE", "/apps/{name}/routes"): Scope.ADMIN,
    ("GET", "/audit"): Scope.ADMIN,
    ("GET", "/audit/check"): Scope.ADMIN,
    ("GET", "/join-tokens"): Scope.ADMIN,
    ("POST", "/join-tokens"): Scope.ADMIN,
    ("DELETE", "/join-tokens/{token_id}"): Scope.ADMIN,
    ("GET", "/keys"): Scope.ADMIN,
    ("POST", "/keys"): Scope.ADMIN,
    ("DELETE", "/keys/{name}"): Scope.ADMIN,
    ("POST", "/cluster/drain"): Scope.ADMIN,
    ("POST", "/cluster/rebalance"): Scope.OPERATE,
    ("POST", "/cluster/simulate"): Scope.OPERATE,
    ("POST", "/alerts/{alert_id}/acknowledge"): Scope.OPERATE,
    ("GET", "/cluster/webhook-secret"): Scope.ADMIN,
    ("GET", "/cluster/journal"): Scope.ADMIN,
    ("POST", "/schedules"): Scope.OPERATE,
    ("DELETE", "/schedules/{name}"): Scope.OPERATE,
    ("POST", "/schedules/{name}/pause"): Scope.OPERATE,
    ("POST", "/schedules/{name}/resume"): Scope.OPERATE,
    ("POST", "/schedules/{name}/run"): Scope.OPERATE,
    ("POST", "/nodes/join"): Scope.JOIN,
    ("PATCH", "/nodes/{node_id}"): Scope.OPERATE,
    ("DELETE", "/nodes/{node_id}"): Scope.OPERATE,
    ("POST", "/nodes/{node_id}/cordon"): Scope.OPERATE,
    ("POST", "/nodes/{node_id}/drain"): Scope.OPERATE,
    ("POST", "/nodes/{node_id}/uncordon"): Scope.OPERATE,
    ("POST", "/nodes/{node_id}/windows"): Scope.OPERATE,
    ("DELETE", "/nodes/{node_id}/windows/{name}"): Scope.OPERATE,
    ("POST", "/nodes/{node_id}/gpus/{gpu_id}/release"): Scope.OPERATE,
    ("POST", "/nodes/{node_id}/breakers/reset"): Scope.OPERATE,
    ("POST", "/nodes/{node_id}/register"): Scope.NODE,
    ("POST", "/nodes/{node_id}/beat"): Scope.NODE,
    ("GET", "/nodes/{node_id}/desired"): Scope.NODE,
    ("POST", "/secrets"): Scope.ADMIN,
    ("DELETE", "/secrets/{name}"): Scope.ADMIN,
    ("POST", "/workers/{worker_id}/register"): Scope.NODE,
    ("POST", "/workers/{worker_id}/secrets"): Scope.NODE,
    ("POST", "/workers/{worker_id}/execs/{exec_id}"): Scope.NODE,
    ("POST", "/workers/{worker_id}/reports"): Scope.NODE,
    ("POST", "/workers/{worker_id}/trees"): Scope.NODE,
    ("GET", "/workers/{worker_id}/checkpoints/{task_id}"): Scope.NODE,
    ("GET", "/workers/{worker_id}/models/{name}"): Scope.NODE,
    ("GET", "/workers/{worker_id}/models/{name}/files/{file:path}"): Scope.NODE,
}

# Calls that nodes may make too, beside those that SCOPES lets.
FOR_NODES = {
    ("GET", "/objects/{digest}"),
    ("POST", "/objects"),
    ("POST", "/objects/missing"),
    ("HEAD", "/objects/{digest}"),
    ("POST", "/run_on_worker"),
    ("DELETE", "/nodes/{node_id}"),
}

# Calls that only look, though they are POST.
LOOKS = {
    "/tasks/collect",
    "/objects/missing",
    "/events/ticket",
    "/ui/session",
    "/ui/links",
    "/get_job_status",
    "/get_dlq_jobs",
    "/launch_worker_status",
    "/get_worker_status",
    "/query_worker_status",
    "/get_worker_status_by_url",
    "/query_worker_status_by_url",
    "/endpoints",
    "/status",
    "/heartbeat",
    "/server_id",
    "/class_name",
    "/pid_file",
    "/mcp-server/mcp",  # its tools ask for what the calls behind them ask for
}


# Answers without an end, which these tests must not wait for: they ask wrongly.
ENDLESS = {"/events/stream"}


def walk(routes: Iterable[Any]) -> Iterator[Any]:
    """All routes; FastAPI may keep those of a router under one that stands for it."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        yield from walk(inner.routes) if inner is not None else [route]


def calls(app: FastAPI) -> list[tuple[str, str]]:
    """(method, path) of every HTTP route."""
    return [
        (method, route.path)
        for route in walk(app.routes)
        if isinstance(route, APIRoute)
        for method in sorted(route.methods or ())
    ]


def sockets(app: FastAPI) -> list[str]:
    return [r.path for r in walk(app.routes) if isinstance(r, APIWebSocketRoute)]


def fill(path: str, **ids: str) -> str:
    names = {
        "task_id": "t",
        "worker_id": "w",
        "node_id": "n",
        "digest": "d",
        "name": "x",
        "exec_id": "e",
        "token_id": "k",
        "alert_id": "1",
        "gpu_id": "g",
        "file": "f",
        **ids,
    }
    path += "?detail=wrong" if path in ENDLESS else ""
    return path.replace(":path", "").format(**names)
