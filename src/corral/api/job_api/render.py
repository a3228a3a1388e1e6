"""From our tasks and workers to the shapes of the job API."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from corral.api.job_api import shapes
from corral.core.nodes.worker import LAUNCHED
from corral.core.tasks.job_status import JOB_STATUS, NONEXISTENT, WORKER_STATUS
from corral.core.tasks.task import State, Task
from corral.manager.cluster.state import WorkerLink
from corral.manager.workers.types import LaunchProgress
from corral.wire.job_api import LaunchStatus


def job(task: Task) -> shapes.JobOut:
    spec = task.spec
    return shapes.JobOut(
        id=spec.id,
        name=spec.options.name or spec.job_type,
        schema_name=spec.job_type,
        payload=Raw(spec.payload.encode()) if spec.payload else None,
        status=JOB_STATUS[task.state],
        created_at=task.created_at,
        started_at=task.started_at,
        completed_at=task.finished_at,
        error=task.error.message if task.error else None,
        entrypoint=spec.options.entrypoint,
        priority=spec.priority,
    )


def job_status(task: Task, target: str = "") -> shapes.JobStatusOut:
    return shapes.JobStatusOut(
        job_id=task.id,
        worker_id=target or task.worker_id or "",
        status=JOB_STATUS[task.state],
        output=_output(task),
        job=job(task),
    )


def _output(task: Task) -> Raw | dict[str, Any]:
    if task.state is State.COMPLETED:
        return Raw((task.result or "null").encode())
    return failure(task) if task.is_terminal else {}


def failure(task: Task) -> dict[str, Any]:
    """What went wrong, and in how many attempts; nothing of it is dropped."""
    error = task.error
    if error is None:
        return {}
    return {
        "error": error.message,
        "kind": error.kind,
        "traceback": error.traceback,
        "attempts": task.attempt,
    }


def no_target(job_in: shapes.JobIn, job_id: str) -> shapes.JobStatusOut:
    message = f"No job schema targeting found for job type {job_in.schema_name}"
    return shapes.JobStatusOut(
        job_id=job_id, status="error", output={"error": message}, job=None
    )


def worker(link: WorkerLink | None, worker_id: str = "", url: str = "") -> Any:
    if link is None:
        return shapes.WorkerStatusOut(
            worker_id=worker_id,
            worker_url=url,
            status=NONEXISTENT,
            last_heartbeat=None,
        )
    row = link.worker
    held = next((task_id for _, task_id in link.held()), None)
    status = WORKER_STATUS[row.state]
    if held is not None and status == "idle":
        status = "running"
    return shapes.WorkerStatusOut(
        worker_id=row.id,
        worker_type=row.spec.worker_type or row.spec.worker_class,
        worker_url=row.spec.url or "",
        job_id=held if status == "running" else None,
        status=status,
        last_heartbeat=row.last_heartbeat,
    )


def launch(found: LaunchProgress) -> LaunchStatus:
    row = found.worker.worker if found.worker else None
    return LaunchStatus(
        launch_id=found.id,
        status=found.status,
        worker_id=row.id if row else None,
        worker_name=row.spec.name.removeprefix(LAUNCHED) if row else None,
        worker_url=row.spec.url if row else None,
        error=found.error,
    )
