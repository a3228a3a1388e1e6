"""ClusterManager and Node, as code for the job API uses them.

What is launched here ends with this process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from corral.client.client import Client
from corral.client.http.retry import Patience
from corral.client.job_api import launch
from corral.client.job_api.connection import SERVICE, Connection, Verb, reach
from corral.client.job_api.launch import LaunchedProcess
from corral.client.mcp import McpClient
from corral.errors import Unreachable
from corral.wire import job_api as values

_JOB = ("job_id",)
_NODE = ("node_url",)
_CLUSTER: Mapping[str, Verb] = {
    **SERVICE,
    "submit_job": Verb(values.JobStatus),
    "get_job_status": Verb(values.JobStatus, _JOB, 1),
    "requeue_from_dlq": Verb(values.JobStatus, _JOB, 1),
    "discard_from_dlq": Verb(None, _JOB, 1),
    "get_dlq_jobs": Verb(values.DlqJobs),
    "register_worker_type": Verb(None, ("worker_name", "worker_class"), 2),
    "register_job_schema_to_worker_type": Verb(
        None, ("job_schema_name", "worker_type"), 2
    ),
    "register_job_to_worker": Verb(None, ("job_type", "worker_url"), 2),
    "register_app": Verb(None, ("name", "url"), 2),
    "register_job_to_endpoint": Verb(None, ("job_type", "endpoint"), 2),
    "clear_databases": Verb(),
    "clear_job_schema_queue": Verb(None, ("job_schema_name",), 1),
    "launch_worker": Verb(values.LaunchId, ("node_url", "worker_type"), 2),
    "launch_worker_status": Verb(values.LaunchStatus, ("node_url", "launch_id")),
    "get_worker_status": Verb(values.WorkerStatus, ("worker_id",), 1),
    "get_worker_status_by_url": Verb(values.WorkerStatus, ("worker_url",), 1),
    "query_worker_status": Verb(values.WorkerStatus, ("worker_id",), 1),
    "query_worker_status_by_url": Verb(values.WorkerStatus, ("worker_url",), 1),
    "worker_alert_started_job": Verb(None, ("job_id", "worker_id"), 2),
    "worker_alert_completed_job": Verb(
        None, ("job_id", "worker_id", "status", "output"), 3
    ),
    "register_node": Verb(values.NodeAccess, _NODE, 1),
    "run_on_worker": Verb(values.RunStatus, ("worker_id", "job"), 1),
    "shutdown_worker": Verb(None, ("worker_name", "node_url"), 1),
    "shutdown_worker_by_id": Verb(None, ("worker_id", "node_url"), 1),
    "shutdown_worker_by_port": Verb(None, ("worker_port", "node_url"), 1),
    "shutdown_all_workers": Verb(None, _NODE, 1),
    "shutdown_node": Verb(None, _NODE, 1),
}
_ON_NODE: Mapping[str, Verb] = {
    **SERVICE,
    "launch_worker": Verb(
        values.LaunchId,
        ("worker_type", "worker_url", "worker_name", "auto_connect_job_type"),
        1,
    ),
    "launch_worker_status": Verb(values.LaunchStatus, ("launch_id",), 1),
    "shutdown_worker": Verb(None, ("worker_name",), 1),
    "shutdown_worker_by_id": Verb(None, ("worker_id",), 1),
    "shutdown_worker_by_port": Verb(None, ("worker_port",), 1),
    "shutdown_all_workers": Verb(),
}


class ClusterConnection(Connection):
    verbs = _CLUSTER

    @property
    def mcp_client(self) -> McpClient:
        """The manager's tools as agents see them; see docs/mcp.md."""
        return McpClient(self._client)


class NodeConnection(Connection):
    verbs = _ON_NODE


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
        block: bool = False,
        **_more: Any,
    ) -> ClusterConnection:
        """Start a manager process and return a connection to it.

        Raises:
            AlreadyRunning: something answers at that address already.
            Unreachable: it did not come up within `timeout`.
        """
        process = launch.launch_manager(launch.address(url, host, port))
        _see(process, wait_for_launch, timeout, progress_bar, block)
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
        try:
            client.health()
        except Unreachable as error:
            raise Unreachable(error.message, url=url, status=503) from error
        return ClusterConnection(client.url, client)


class Node:
    """`launch` makes this machine a node of a cluster, under the URL given."""

    @staticmethod
    def launch(
        *,
        cluster_url: str | None = None,
        worker_ports: Sequence[int] = (),
        url: str | None = None,
        host: str = "localhost",
        port: int = 8003,
        wait_for_launch: bool = True,
        timeout: float = 60.0,
        progress_bar: bool = True,
        block: bool = False,
        api_key: str | None = None,
        **_more: Any,
    ) -> NodeConnection:
        """Start an agent process and return a connection to its node.

        Its workers get ports from `worker_ports`, else from the manager's range.

        Raises:
            AlreadyRunning: something answers at that address already.
            Unreachable: it did not come online within `timeout`.
        """
        where = launch.address(url, host, port)
        process = launch.launch_node(cluster_url, where, api_key, worker_ports)
        _see(process, wait_for_launch, timeout, progress_bar, block)
        return NodeConnection(where, None, process)

    @staticmethod
    def connect(
        url: str = "http://localhost:8003",
        timeout: float = 60.0,
        api_key: str | None = None,
    ) -> NodeConnection:
        """A connection to a node that runs.

        Raises:
            Unreachable: nothing answers there within `timeout`.
        """
        client = launch.find_service(url, api_key, timeout)
        return NodeConnection(url.rstrip("/"), reach(url, client))


def _see(
    process: LaunchedProcess,
    is_awaited: bool,
    timeout_s: float,
    show: bool,
    block: bool,
) -> None:
    if is_awaited:
        process.wait(timeout_s, show=show)
    if block:
        process.running.wait()
