"""The calls about the cluster itself: nodes, workers, job types, tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from corral.client.exchange import Flow, Request, get, segment
from corral.client.fault import decode
from corral.client.payload import encode
from corral.client.service_value import LaunchId, LaunchStatus
from corral.client.value import (
    AppInfo,
    ClusterStatus,
    Health,
    JobTypeInfo,
    JoinToken,
    NodeInfo,
    WorkerInfo,
    WorkerRestart,
    WorkerTypeInfo,
)
from corral.core.tasks.job_type import ORCHESTRATOR
from corral.errors import Conflict


class _Workers(msgspec.Struct):
    workers: list[WorkerInfo]


class _Nodes(msgspec.Struct):
    nodes: list[NodeInfo]


class _WorkerTypes(msgspec.Struct):
    worker_types: list[WorkerTypeInfo]


class _Apps(msgspec.Struct):
    apps: list[AppInfo]


class _JobTypes(msgspec.Struct):
    job_types: list[JobTypeInfo]


class _Draining(msgspec.Struct):
    running: int


def _post(path: str, **fields: Any) -> Request:
    given = {key: value for key, value in fields.items() if value is not None}
    return Request("POST", path, body=encode(given))


def health() -> Flow[Health]:
    """Is the manager up? Needs no key."""
    response = yield get("/health")
    return decode(response, Health)


def cluster_status() -> Flow[ClusterStatus]:
    response = yield get("/cluster/status")
    return decode(response, ClusterStatus)


def nodes() -> Flow[list[NodeInfo]]:
    response = yield get("/nodes")
    return decode(response, _Nodes).nodes


def node(node_id: str) -> Flow[NodeInfo]:
    response = yield get(f"/nodes/{segment(node_id)}")
    return decode(response, NodeInfo)


def workers(*, status: str | None = None) -> Flow[list[WorkerInfo]]:
    """Workers; `status` is online, busy, error or offline."""
    response = yield get("/workers", status=status)
    return decode(response, _Workers).workers


def worker(worker_id: str) -> Flow[WorkerInfo]:
    response = yield get(f"/workers/{segment(worker_id)}")
    return decode(response, WorkerInfo)


def launch_worker(
    worker_class: str,
    *,
    name: str | None = None,
    job_types: Sequence[str] | None = None,
    params: Mapping[str, Any] | None = None,
    concurrency: int | None = None,
    node_id: str | None = None,
    count: int | None = None,
    gpus: int | str | None = None,
) -> Flow[list[WorkerInfo]]:
    """Ask for workers of a class (`module:Class`); agents start them soon after.

    `gpus` are the cards each has for itself: how many, or which (`gpu:0`, ids).
    """
    response = yield _post(
        "/workers",
        worker_class=worker_class,
        name=name,
        job_types=job_types,
        params=params,
        concurrency=concurrency,
        node_id=node_id,
        count=count,
        gpus=gpus,
    )
    return decode(response, _Workers).workers


def stop_worker(worker_id: str) -> Flow[None]:
    """Stop a worker for good; its unfinished tasks go back to the queue."""
    yield Request("DELETE", f"/workers/{segment(worker_id)}")


def restart_worker(worker_id: str) -> Flow[WorkerRestart]:
    """Start a worker anew under its id, once it has finished what it runs."""
    path = f"/workers/{segment(worker_id)}/restart"
    response = yield Request("POST", path)
    return decode(response, WorkerRestart)


def release_gpu(node_id: str, gpu_id: str) -> Flow[dict[str, Any]]:
    """Lift the quarantine of a card; the card as it was."""
    path = f"/nodes/{segment(node_id)}/gpus/{segment(gpu_id)}/release"
    response = yield Request("POST", path)
    return decode(response, dict[str, Any])


def launch_worker_of_type(
    worker_type: str,
    *,
    node: str,
    name: str | None = None,
    url: str | None = None,
    gpus: int | str | None = None,
) -> Flow[str]:
    """Ask for a worker of a registered type on a node; its id.

    `node` is the node's id, name or URL; `url` is what the worker is known by; `gpus`
    are the cards it has for itself.

    Raises:
        Conflict: it cannot be launched, like when no port is free.
    """
    response = yield _post(
        "/launch_worker",
        node_url=node,
        worker_type=worker_type,
        worker_name=name,
        worker_url=url,
        gpus=gpus,
    )
    launch = decode(response, LaunchId)
    response = yield _post("/launch_worker_status", launch_id=launch.launch_id)
    status = decode(response, LaunchStatus)
    if status.status == "failed" and status.worker_id is None:
        raise Conflict(status.error or "the worker cannot be launched")
    return launch.launch_id


def apps() -> Flow[list[AppInfo]]:
    """The HTTP services the gateway forwards to."""
    response = yield get("/apps")
    return decode(response, _Apps).apps


def register_app(
    name: str,
    url: str,
    *,
    timeout: float | None = None,
    concurrency: int | None = None,
) -> Flow[AppInfo]:
    """Forward what comes under a name to an HTTP service, or change what it names."""
    response = yield _post(
        "/apps", name=name, url=url, timeout=timeout, concurrency=concurrency
    )
    return decode(response, AppInfo)


def remove_app(name: str) -> Flow[None]:
    """Stop forwarding to an app. Raises Conflict while a job type targets it."""
    yield Request("DELETE", f"/apps/{segment(name)}")


def add_route(name: str, path: str, timeout: float) -> Flow[AppInfo]:
    """Give a path of an app, and all below it, a timeout of its own."""
    body = encode({"path": path, "timeout": timeout})
    response = yield Request("POST", f"/apps/{segment(name)}/routes", body=body)
    return decode(response, AppInfo)


def remove_route(name: str, path: str) -> Flow[AppInfo]:
    """Let a path of an app have the app's own timeout again."""
    address = f"/apps/{segment(name)}/routes"
    response = yield Request("DELETE", address, {"path": path})
    return decode(response, AppInfo)


def target_job_type(name: str, target: str | None) -> Flow[None]:
    """Send tasks of a type to an app and path, `echo/run`; to workers with None."""
    endpoint = ORCHESTRATOR if target is None else target
    yield _post("/register_job_to_endpoint", job_type=name, endpoint=endpoint)


def clear_databases() -> Flow[None]:
    """Cancel and remove every task, dead letter, worker type and target."""
    yield Request("POST", "/clear_databases")


def job_types() -> Flow[list[JobTypeInfo]]:
    response = yield get("/job-types")
    return decode(response, _JobTypes).job_types


def register_job_type(
    name: str,
    *,
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    batch_limit: int | None = None,
    cache_ttl_s: float | None = None,
) -> Flow[None]:
    """Make a kind of work known, so that tasks of it are accepted.

    Up to `batch_limit` tasks go to one worker at once, for classes with `run_batch`.
    For `cache_ttl_s` seconds a result answers the same input again.
    """
    yield _post(
        "/job-types",
        name=name,
        input_schema=input_schema,
        output_schema=output_schema,
        batch_limit=batch_limit,
        cache_ttl_s=cache_ttl_s,
    )


def worker_types() -> Flow[list[WorkerTypeInfo]]:
    """The named recipes for workers."""
    response = yield get("/worker-types")
    return decode(response, _WorkerTypes).worker_types


def register_worker_type(
    name: str,
    worker_class: str,
    *,
    job_type: str | None = None,
    params: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    min_workers: int | None = None,
    max_workers: int | None = None,
    gpus: int | str | None = None,
) -> Flow[None]:
    """Name a class that nodes may launch workers of, or replace what it names.

    `environment` says where its code comes from: `{"git": {"repo_url": ...}}`,
    `{"archive": {"digest": ...}}` or `{"docker": {"image": ...}}`; without it the
    class is installed on the nodes. With `max_workers` demand decides how many workers
    it has; each is given `gpus`. Limits and cards that are not said stay as they were.
    """
    yield _post(
        "/register_worker_type",
        worker_name=name,
        worker_class=worker_class,
        worker_params=params,
        job_type=job_type,
        environment=environment,
        min_workers=min_workers,
        max_workers=max_workers,
        gpus=gpus,
    )


def remove_worker_type(name: str) -> Flow[None]:
    """Forget a worker type; workers launched from it go on."""
    yield Request("DELETE", f"/worker-types/{segment(name)}")


def join_token(
    *, ttl_s: float | None = None, uses: int | None = None
) -> Flow[JoinToken]:
    """A token with which `corral join` brings another machine in."""
    response = yield _post("/join-tokens", ttl_s=ttl_s, uses=uses)
    return decode(response, JoinToken)


def drain(*, resume: bool = False) -> Flow[int]:
    """Hand out no more work, or again with `resume`; how many tasks still run."""
    query = {"resume": "true"} if resume else {}
    response = yield Request("POST", "/cluster/drain", query, is_repeatable=True)
    return decode(response, _Draining).running
