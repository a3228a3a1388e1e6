"""The JSON shapes of the job API. Unknown keys are let pass, optional ones may lack."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

from corral.wire.job_api import DlqJob, DlqJobs, JobStatus, RunStatus, WorkerStatus


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


class JobStatusOut(JobStatus, frozen=True, kw_only=True):
    output: Raw | dict[str, Any]
    job: JobOut | None  # type: ignore[assignment]


class DlqJobOut(DlqJob, frozen=True, kw_only=True):
    output: dict[str, Any]
    job: JobOut  # type: ignore[assignment]


class DlqOut(DlqJobs, frozen=True, kw_only=True):
    jobs: list[DlqJobOut]  # type: ignore[assignment]


class RunOut(RunStatus, frozen=True, kw_only=True):
    output: Raw | dict[str, Any]


class WorkerStatusOut(WorkerStatus, frozen=True, kw_only=True):
    last_heartbeat: datetime | None  # type: ignore[assignment]


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


class LaunchAsked(Struct):
    launch_id: str
    node_url: str | None = None


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
