"""The calls about the cluster as a whole, and its apps."""

from __future__ import annotations

from corral.client.http.endpoint import Flow, Request, get, segment
from corral.client.http.errors import decode
from corral.client.http.payload import encode, post
from corral.wire.insight import ClusterStatus, DrainInfo, HealthInfo
from corral.wire.queues import AppInfo, AppList


def health() -> Flow[HealthInfo]:
    """Is the manager up? Needs no key."""
    response = yield get("/health")
    return decode(response, HealthInfo)


def cluster_status() -> Flow[ClusterStatus]:
    response = yield get("/cluster/status")
    return decode(response, ClusterStatus)


def apps() -> Flow[list[AppInfo]]:
    """The HTTP services the gateway forwards to."""
    response = yield get("/apps")
    return decode(response, AppList).apps


def register_app(
    name: str,
    url: str,
    *,
    timeout: float | None = None,
    concurrency: int | None = None,
) -> Flow[AppInfo]:
    """Forward what comes under a name to an HTTP service, or change what it names."""
    response = yield post(
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


def clear_databases() -> Flow[None]:
    """Cancel and remove every task, dead letter, worker type and target."""
    yield Request("POST", "/clear_databases")


def drain(*, resume: bool = False) -> Flow[int]:
    """Hand out no more work, or again with `resume`; how many tasks still run."""
    query = {"resume": "true"} if resume else {}
    response = yield Request("POST", "/cluster/drain", query, is_repeatable=True)
    return decode(response, DrainInfo).running
