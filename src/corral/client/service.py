"""ClusterManager and Node, as code for the job API uses them.

Every endpoint is a method of the connection by its own name, and with the prefix `a` a
coroutine. What is launched here ends with this process.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

import msgspec
from pydantic import BaseModel

from corral.client import service_value as values
from corral.client.exchange import Flow, Request
from corral.client.face import Client
from corral.client.fault import decode
from corral.client.launch import Process, launch_manager, launch_node
from corral.client.persistence import Patience
from corral.client.value import WorkerInfo
from corral.errors import CorralError, Unreachable, WorkerNotFound

_CLUSTER: Mapping[str, type | None] = {
    "submit_job": values.JobStatus,
    "get_job_status": values.JobStatus,
    "requeue_from_dlq": values.JobStatus,
    "discard_from_dlq": None,
    "get_dlq_jobs": values.DlqJobs,
    "register_worker_type": None,
    "register_job_schema_to_worker_type": None,
    "register_job_to_worker": None,
    "register_app": None,
    "register_job_to_endpoint": None,
    "clear_job_schema_queue": None,
    "launch_worker": values.LaunchId,
    "launch_worker_status": values.LaunchStatus,
    "get_worker_status": values.WorkerStatus,
    "get_worker_status_by_url": values.WorkerStatus,
    "query_worker_status": values.WorkerStatus,
    "query_worker_status_by_url": values.WorkerStatus,
    "worker_alert_started_job": None,
    "worker_alert_completed_job": None,
}


class Connection:
    """A service that runs somewhere; as a context manager it is shut down after."""

    calls: ClassVar[Mapping[str, type | None]] = {}

    def __init__(
        self, url: str, client: Client | None, process: Process | None = None
    ) -> None:
        self.url = url
        self._given = client
        self._process = process

    @property
    def _client(self) -> Client:
        if self._given is None:
            assert self._process is not None
            self._given = self._process.client
        return self._given

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in self.calls:
            return functools.partial(self.call, name)
        if name.startswith("a") and name[1:] in self.calls:
            return functools.partial(self._later, name[1:])
        raise AttributeError(name)

    def call(self, name: str, body: Any = None, /, **fields: Any) -> Any:
        """Call an endpoint with keyword arguments, or with one model as its body."""
        return self._client.drive(_flow(name, _plain(body, fields), self.calls[name]))

    async def _later(self, name: str, *args: Any, **fields: Any) -> Any:
        return await asyncio.to_thread(self.call, name, *args, **fields)

    def status(self) -> values.ServiceStatus:
        flow: Flow[values.ServiceStatus] = _flow("status", {}, values.ServiceStatus)
        return self._client.drive(flow)

    def shutdown(self, block: bool = True) -> None:
        """Stop the service; what it stored stays."""
        if self._process is not None:
            self._process.stop(block=block)
        else:
            self._client.drive(_flow("shutdown", {}, None))
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.shutdown()


class ClusterConnection(Connection):
    calls = _CLUSTER


class NodeConnection(Connection):
    """A node; its calls travel by way of the manager, which knows it by its URL."""

    def launch_worker(
        self,
        worker_type: str,
        worker_url: str | None = None,
        worker_name: str | None = None,
    ) -> values.LaunchId:
        body = {
            "node_url": self.url,
            "worker_type": worker_type,
            "worker_url": worker_url,
            "worker_name": worker_name,
        }
        flow: Flow[values.LaunchId] = _flow("launch_worker", body, values.LaunchId)
        return self._client.drive(flow)

    def launch_worker_status(self, launch_id: str) -> values.LaunchStatus:
        body = {"node_url": self.url, "launch_id": launch_id}
        flow: Flow[values.LaunchStatus] = _flow(
            "launch_worker_status", body, values.LaunchStatus
        )
        return self._client.drive(flow)

    def shutdown_worker(self, worker_name: str) -> None:
        """Stop the worker of this name on this node."""
        self._stop(lambda w: w.name.removeprefix("api-") == worker_name, worker_name)

    def shutdown_worker_by_id(self, worker_id: str) -> None:
        self._stop(lambda w: w.worker_id == worker_id, worker_id)

    def shutdown_worker_by_port(self, worker_port: int) -> None:
        self._stop(lambda w: self._port(w) == worker_port, f"port {worker_port}")

    def shutdown_all_workers(self) -> None:
        """Stop every worker of this node, and of no other."""
        for worker in self._workers():
            self._client.stop_worker(worker.worker_id)

    def _stop(self, is_wanted: Callable[[WorkerInfo], bool], what: str) -> None:
        found = [w for w in self._workers() if is_wanted(w)]
        if not found:
            raise WorkerNotFound(f"no worker {what!r} on {self.url}")
        for worker in found:
            self._client.stop_worker(worker.worker_id)

    def _workers(self) -> list[WorkerInfo]:
        mine = {
            n.node_id for n in self._client.nodes() if n.labels.get("url") == self.url
        }
        return [w for w in self._client.workers() if w.node_id in mine]

    def _port(self, worker: WorkerInfo) -> int | None:
        body = {"worker_id": worker.worker_id}
        flow: Flow[values.WorkerStatus] = _flow(
            "get_worker_status", body, values.WorkerStatus
        )
        return urlsplit(self._client.drive(flow).worker_url).port

    def shutdown(self, block: bool = True) -> None:
        if self._process is not None:
            self._process.stop(block=block)
        self._client.close()


class ClusterManager:
    """`launch` starts a manager with stores of its own; `connect` finds one."""

    @staticmethod
    def launch(
        *,
        url: str | None = None,
        host: str = "localhost",
        port: int = 8002,
        wait_for_launch: bool = True,
        timeout: float = 60.0,
        progress_bar: bool = True,
        **_more: Any,
    ) -> ClusterConnection:
        """Start a manager process and return a connection to it.

        Raises:
            AlreadyRunning: something answers at that address already.
            Unreachable: it did not come up within `timeout`.
        """
        process = launch_manager(url, host, port, show=progress_bar)
        if wait_for_launch:
            _await(process, timeout)
        return ClusterConnection(process.url, None, process)

    @staticmethod
    def connect(
        url: str | None = None, timeout: float = 60.0, api_key: str | None = None
    ) -> ClusterConnection:
        """A connection to a manager that runs.

        Raises:
            Unreachable: nothing answers there within `timeout`.
        """
        client = Client(url, api_key, patience=Patience(timeout, timeout))
        client.health()
        return ClusterConnection(client.url, client)


class Node:
    """`launch` makes this machine a node of a cluster, under the URL given."""

    @staticmethod
    def launch(
        *,
        cluster_url: str,
        url: str | None = None,
        host: str = "localhost",
        port: int = 8003,
        timeout: float = 60.0,
        wait_for_launch: bool = True,
        api_key: str | None = None,
        **_more: Any,
    ) -> NodeConnection:
        """Start an agent process and return a connection to its node.

        Raises:
            Unreachable: it did not come online within `timeout`.
        """
        name = url or f"http://{host}:{port}"
        process = launch_node(cluster_url, name, api_key)
        if wait_for_launch:
            _await(process, timeout)
        return NodeConnection(name, None, process)


def _await(process: Process, timeout_s: float) -> None:
    ends = time.monotonic() + timeout_s
    while not process.is_ready():
        if process.is_over or time.monotonic() > ends:
            process.stop(block=True)
            raise Unreachable(f"{process.url} did not come up: {process.last_word()}")
        time.sleep(0.1)


def _plain(body: Any, fields: dict[str, Any]) -> Any:
    if body is None:
        return fields
    if fields:
        raise TypeError("give keyword arguments or one model, not both")
    return body.model_dump(mode="json") if isinstance(body, BaseModel) else body


def _flow(name: str, body: Any, kind: type | None) -> Flow[Any]:
    try:
        text = msgspec.json.encode(body)
    except (TypeError, ValueError) as error:
        raise CorralError(f"{name}: JSON has no form for this: {error}") from error
    response = yield Request("POST", f"/{name}", body=text)
    return None if kind is None else decode(response, kind)
