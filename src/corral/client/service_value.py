"""What the services of the job API answer, as plain values with attributes."""

from __future__ import annotations

from typing import Any

from corral.client.value import Value


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
