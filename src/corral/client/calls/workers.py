"""The calls about workers and worker types, and how many there are by demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from corral.client.http.endpoint import Flow, Request, get, segment
from corral.client.http.errors import decode
from corral.client.http.payload import encode, post
from corral.errors import Conflict
from corral.wire.job_api import LaunchId, LaunchStatus
from corral.wire.workers import (
    Scaling,
    WorkerInfo,
    WorkerList,
    WorkerRestart,
    WorkerTypeInfo,
    WorkerTypeList,
)


def scaling() -> Flow[Scaling]:
    """How the worker types stand that are scaled by demand."""
    response = yield get("/cluster/scaling")
    return decode(response, Scaling)


def scale_worker_type(
    name: str, *, min_workers: int = 0, max_workers: int | None
) -> Flow[WorkerTypeInfo]:
    """Let demand decide how many workers a type has. Raises NotFound.

    Args:
        name: The worker type; it must serve a job type.
        min_workers: So many it has always; 0 lets it go without any.
        max_workers: More it never gets; None takes both limits away.
    """
    body = encode({"min_workers": min_workers, "max_workers": max_workers})
    path = f"/worker-types/{segment(name)}/scaling"
    response = yield Request("PUT", path, body=body, is_repeatable=True)
    return decode(response, WorkerTypeInfo)


def workers(*, status: str | None = None) -> Flow[list[WorkerInfo]]:
    """Workers; `status` is online, busy, error or offline."""
    response = yield get("/workers", status=status)
    return decode(response, WorkerList).workers


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
    response = yield post(
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
    return decode(response, WorkerList).workers


def stop_worker(worker_id: str) -> Flow[None]:
    """Stop a worker for good; its unfinished tasks go back to the queue."""
    yield Request("DELETE", f"/workers/{segment(worker_id)}")


def restart_worker(worker_id: str) -> Flow[WorkerRestart]:
    """Start a worker anew under its id, once it has finished what it runs."""
    path = f"/workers/{segment(worker_id)}/restart"
    response = yield Request("POST", path)
    return decode(response, WorkerRestart)


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
    response = yield post(
        "/launch_worker",
        node_url=node,
        worker_type=worker_type,
        worker_name=name,
        worker_url=url,
        gpus=gpus,
    )
    launch = decode(response, LaunchId)
    response = yield post("/launch_worker_status", launch_id=launch.launch_id)
    status = decode(response, LaunchStatus)
    if status.status == "failed" and status.worker_id is None:
        raise Conflict(status.error or "the worker cannot be launched")
    return launch.launch_id


def worker_types() -> Flow[list[WorkerTypeInfo]]:
    """The named recipes for workers."""
    response = yield get("/worker-types")
    return decode(response, WorkerTypeList).worker_types


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
    yield post(
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
