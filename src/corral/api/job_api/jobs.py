"""The job API: a second face of the same tasks, workers and nodes. All POST."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from msgspec import Raw

from corral.api.body import answer, read
from corral.api.caller import Caller, caller
from corral.api.job_api import render, shapes
from corral.api.openapi import described
from corral.api.tasks.routes import intake_of
from corral.core.access.key import Scope
from corral.core.tasks.job_type import ORCHESTRATOR, check_text
from corral.core.tasks.task import Task, TaskFilter
from corral.errors import Conflict, CorralError, InvalidField, TaskNotFound
from corral.manager.clock import new_task_id

router = APIRouter(tags=["job API"])
Submitter = Annotated[Caller, Depends(caller(Scope.SUBMIT))]
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]
MAX_DLQ = 1000
MAX_WAIT_S = 60.0
_JOB = {"schema_name": "echo", "payload": {"message": "hi"}}


@router.post(
    "/submit_job",
    summary="Submit a job",
    **described(shapes.JobStatusOut, body=shapes.JobIn, errors=(409,), example=_JOB),
)
async def submit_job(request: Request, who: Submitter) -> Response:
    job = await read(request, shapes.JobIn)
    target = who.manager.queues.job_types.target_of(job.schema_name)
    if target is None:
        return answer(render.no_target(job, job.id or new_task_id()))
    task = await submit(request, who, job)
    if target == ORCHESTRATOR:
        return answer(render.job_status(task))
    # A job for an endpoint is answered with its outcome.
    return answer(render.job_status(await ended(who, task), target))


async def submit(
    request: Request, who: Caller, job: shapes.JobIn, only_on: str | None = None
) -> Task:
    """Take a job in; one that has ended is run again.

    `only_on` is the one worker that may run it; a job that is not for that worker is
    left alone.
    """
    body: dict[str, Any] = {
        "task_type": job.schema_name,
        "task_id": job.id or new_task_id(),
        "priority": 0 if job.priority is None else job.priority,
        "only_on": only_on,
        "name": job.name if job.name != job.schema_name else None,
    }
    spec = intake_of(who, request).one(_with_payload(body, job.payload))
    if job.entrypoint:
        entrypoint = check_text(job.entrypoint, "entrypoint")
        spec = replace(spec, options=replace(spec.options, entrypoint=entrypoint))
    result = (await who.manager.tasks.submit([spec]))[0]
    if isinstance(result, CorralError):
        raise result
    task = result.task
    if only_on is not None and task.spec.options.only_on != only_on:
        raise Conflict(f"job {task.id} is known, and not for worker {only_on}")
    if not result.is_new and task.is_terminal:
        task = await who.manager.tasks.requeue(task.id, who.only_of)
    who.note("job.submit", task.id)
    return task


async def ended(who: Caller, task: Task) -> Task:
    """The task when it has ended, or as it is after the longest wait."""
    who.wait()
    await who.manager.tasks.wait([task.id], MAX_WAIT_S)
    return await who.manager.tasks.reads.find(task.id) or task


def _with_payload(body: dict[str, Any], payload: Any) -> bytes:
    text = json.dumps(body).encode()
    raw = bytes(payload) if isinstance(payload, Raw) else b"{}"
    return text[:-1] + b', "parameters": ' + raw + b"}"


@router.post(
    "/get_job_status",
    summary="A job as it is now",
    **described(
        shapes.JobStatusOut, body=shapes.JobId, errors=(404,), example={"job_id": "..."}
    ),
)
async def get_job_status(request: Request, who: Reader) -> Response:
    wanted = await read(request, shapes.JobId)
    task = await who.manager.tasks.reads.find(wanted.job_id)
    if task is None:
        raise TaskNotFound(f"no job {wanted.job_id!r}", job_id=wanted.job_id)
    return answer(render.job_status(task))


@router.post(
    "/get_dlq_jobs",
    summary="Jobs that failed for good",
    **described(shapes.DlqOut),
)
async def get_dlq_jobs(who: Reader) -> Response:
    page = await who.manager.tasks.reads.page(TaskFilter(dead_letter=True), MAX_DLQ)
    jobs = [
        shapes.DlqJobOut(job_id=t.id, output=render.failure(t), job=render.job(t))
        for t in page.tasks
    ]
    return answer(shapes.DlqOut(jobs=jobs))


@router.post(
    "/requeue_from_dlq",
    summary="Run a dead job again under the same id",
    **described(
        shapes.JobStatusOut,
        body=shapes.JobId,
        errors=(404, 409),
        example={"job_id": "..."},
    ),
)
async def requeue_from_dlq(request: Request, who: Submitter) -> Response:
    wanted = await read(request, shapes.JobId)
    task = await who.manager.tasks.requeue(wanted.job_id, who.only_of)
    who.note("job.requeue", task.id)
    return answer(render.job_status(task))


@router.post(
    "/discard_from_dlq",
    summary="Take a job out of the dead letters",
    **described(dict, body=shapes.JobId, errors=(404,), example={"job_id": "..."}),
)
async def discard_from_dlq(request: Request, who: Submitter) -> Response:
    wanted = await read(request, shapes.JobId)
    reads = who.manager.tasks.reads
    if not await reads.discard_dead_letter(wanted.job_id, who.only_of):
        raise TaskNotFound(f"no dead job {wanted.job_id!r}", job_id=wanted.job_id)
    who.note("job.discard", wanted.job_id)
    return answer(None)


@router.post(
    "/worker_alert_started_job",
    summary="A worker of the caller's own began a job",
    **described(
        dict,
        body=shapes.Started,
        errors=(404,),
        example={"job_id": "", "worker_id": ""},
    ),
)
async def worker_alert_started_job(request: Request, who: Operator) -> Response:
    said = await read(request, shapes.Started)
    if await who.manager.tasks.reads.find(said.job_id) is None:
        raise TaskNotFound(f"no job {said.job_id!r}", job_id=said.job_id)
    who.note("job.started", said.job_id, worker_id=said.worker_id)
    return answer(None)


@router.post(
    "/worker_alert_completed_job",
    summary="A worker of the caller's own ended a job",
    **described(
        dict,
        body=shapes.Completed,
        errors=(404, 409),
        example={"job_id": "", "worker_id": "", "status": "completed", "output": {}},
    ),
)
async def worker_alert_completed_job(request: Request, who: Operator) -> Response:
    said = await read(request, shapes.Completed)
    if said.status not in ("completed", "failed", "error"):
        raise InvalidField("status must be completed, failed or error", field="status")
    told = bytes(said.output) if isinstance(said.output, Raw) else b"{}"
    is_good = said.status == "completed"
    if not await who.manager.tasks.conclude(said.job_id, told, is_good=is_good):
        raise TaskNotFound(f"no live job {said.job_id!r}", job_id=said.job_id)
    who.note("job.completed", said.job_id, worker_id=said.worker_id)
    return answer(None)
