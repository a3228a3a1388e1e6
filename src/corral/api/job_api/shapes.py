"""The JSON shapes of the job API. Unknown keys are let pass, optional ones may lack."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType


class JobIn(Struct):
    schema_name: str
    id: str | None = None
    name: str | None = None
    payload: Raw | UnsetType = UNSET
    priority: int | str | None = None
    entrypoint: str | None = None


class JobOut(Struct):
    id: str
    name: str
    schema_name: str
    payload: Raw | None
    status: str
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    error: str | None
    entrypoint: str | None
    priority: int


class JobStatus(Struct):
    job_id: str
    worker_id: str
    status: str
    output: Raw | dict[str, Any]
    job: JobOut | None


class DlqJob(Struct):
    job_id: str
    output: dict[str, Any]
    job: JobOut


class DlqOut(Struct):
    jobs: list[DlqJob]


class WorkerStatus(Struct):
    worker_id: str
    worker_type: str
    worker_url: str
    job_id: str | None
    status: str
    last_heartbeat: datetime | None


class JobId(Struct):
    job_id: str


class WorkerId(Struct):
    worker_id: str


class WorkerUrl(Struct):
    worker_url: str


class RegisterAppIn(Struct):
    name: str
    url: str


class JobToEndpoint(Struct):
    job_type: str
    endpoint: str


class JobToWorker(Struct):
    job_type: str
    worker_url: str


class SchemaToWorkerType(Struct):
    job_schema_name: str
    worker_type: str


class SchemaName(Struct):
    job_schema_name: str


class WorkerTypeIn(Struct):
    worker_name: str
    worker_class: str
    worker_params: dict[str, Any] = {}
    job_type: str | None = None
    materializer_name: str | None = None
    git_repo_url: str | None = None
    git_branch: str | None = None
    git_commit: str | None = None
    git_working_dir: str | None = None
    git_project: str | None = None
    environment: dict[str, Any] | None = None
    min_workers: int | UnsetType = UNSET
    max_workers: int | UnsetType | None = UNSET
    gpus: int | str | UnsetType = UNSET


class LaunchIn(Struct):
    node_url: str
    worker_type: str
    worker_name: str | None = None
    worker_url: str | None = None
    auto_connect_job_type: str | None = None
    gpus: int | str = ""


class LaunchId(Struct):
    launch_id: str
    node_url: str | None = None


class LaunchOut(Struct):
    launch_id: str


class LaunchStatus(Struct):
    launch_id: str
    status: str
    worker_id: str | None
    worker_name: str | None
    worker_url: str | None
    error: str | None


class Started(Struct):
    job_id: str
    worker_id: str


class Completed(Struct):
    job_id: str
    worker_id: str
    status: str
    output: Raw | UnsetType = UNSET


class RunIn(Struct):
    """A job to run, or the id of one whose end is to be waited for."""

    worker_id: str
    job: JobIn | None = None
    job_id: str | None = None


class RunOut(Struct):
    job_id: str
    status: str
    output: Raw | dict[str, Any]


class NamedWorker(Struct):
    worker_name: str
    node_url: str | None = None


class WorkerById(Struct):
    worker_id: str
    node_url: str | None = None


class WorkerByPort(Struct):
    worker_port: int
    node_url: str | None = None


class NodeIn(Struct):
    node_url: str


class NodeAccess(Struct):
    """Secrets a node no longer needs: it reaches everything through the manager."""

    endpoint: str = ""
    access_key: str = ""
    secret_key: str = ""
    bucket: str = ""
    minio_port: int = 0
    rabbitmq_host: str = ""
    rabbitmq_port: int = 0
    rabbitmq_username: str = ""
    rabbitmq_password: str = ""


class Endpoints(Struct):
    endpoints: list[str]


class ServiceStatus(Struct):
    status: str


class Heartbeat(Struct):
    status: str
    server_id: str
    message: str
    details: dict[str, Any]


class HeartbeatOut(Struct):
    heartbeat: Heartbeat


class ServerId(Struct):
    server_id: str


class ClassName(Struct):
    class_name: str


class PidFile(Struct):
    pid_file: str | None


class Shutdown(Struct):
    shutdown: bool
