"""What the services of the job API answer: jobs, workers, launches, themselves."""

from __future__ import annotations

from typing import Any

from corral.wire.value import Value

CALL_PASS = "x-corral-pass"
"""The header with the one word by which a worker may bring a call of the manager's
gateway back to it as a task; good once.
"""


class JobStatus(Value, frozen=True, kw_only=True):
    job_id: str
    status: str
    worker_id: str = ""
    output: Any = None
    job: dict[str, Any] | None = None


class DlqJob(Value, frozen=True, kw_only=True):
    job_id: str
    output: Any = None
    job: dict[str, Any] | None = None


class DlqJobs(Value, frozen=True, kw_only=True):
    jobs: list[DlqJob] = []


class WorkerStatus(Value, frozen=True, kw_only=True):
    worker_id: str
    status: str
    worker_type: str = ""
    worker_url: str = ""
    job_id: str | None = None
    last_heartbeat: str | None = None


class LaunchId(Value, frozen=True, kw_only=True):
    launch_id: str


class LaunchStatus(Value, frozen=True, kw_only=True):
    launch_id: str
    status: str
    worker_id: str | None = None
    worker_name: str | None = None
    worker_url: str | None = None
    error: str | None = None


class ServiceStatus(Value, frozen=True, kw_only=True):
    status: str


class Endpoints(Value, frozen=True, kw_only=True):
    endpoints: list[str]


class Heartbeat(Value, frozen=True, kw_only=True):
    status: str
    server_id: str = ""
    message: str = ""
    details: dict[str, Any] = {}


class HeartbeatAnswer(Value, frozen=True, kw_only=True):
    heartbeat: Heartbeat


class ServerId(Value, frozen=True, kw_only=True):
    server_id: str


class ClassName(Value, frozen=True, kw_only=True):
    class_name: str


class PidFile(Value, frozen=True, kw_only=True):
    pid_file: str | None = None


class RunStatus(Value, frozen=True, kw_only=True):
    """How a job ended on the worker it was given to."""

    job_id: str = ""
    status: str
    output: Any = None


class LocalStatus(Value, frozen=True, kw_only=True):
    """A worker as it sees itself."""

    worker_id: str
    status: str
    job_id: str | None = None


class NodeAccess(Value, frozen=True, kw_only=True):
    """What nodes once needed; empty, because they reach all through the manager."""

    endpoint: str = ""
    access_key: str = ""
    secret_key: str = ""
    bucket: str = ""
    minio_port: int = 0
    rabbitmq_host: str = ""
    rabbitmq_port: int = 0
    rabbitmq_username: str = ""
    rabbitmq_password: str = ""


class Shutdown(Value, frozen=True, kw_only=True):
    shutdown: bool
