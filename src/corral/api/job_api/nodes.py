"""The job API's calls about one node or one worker. All POST.

Nodes and workers that have a port pass such calls on to here: what they mean is
decided in one place.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from corral.api.body import answer, read
from corral.api.caller import Caller, caller
from corral.api.job_api import render, shapes
from corral.api.job_api.jobs import ended, submit
from corral.api.openapi import described
from corral.core.access.key import Scope
from corral.core.tasks.task import Task
from corral.errors import Forbidden, TaskNotFound
from corral.wire.job_api import CALL_PASS, Shutdown

router = APIRouter(tags=["job API"])
Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]
# A node brings a job back when the manager's gateway called one of its workers.
Runner = Annotated[Caller, Depends(caller(Scope.SUBMIT, Scope.NODE))]
_NODE = {"node_url": "http://localhost:8003"}
_RUN = {
    "worker_id": "w-1",
    "job": {"schema_name": "echo", "payload": {"message": "hi"}},
}


@router.post(
    "/run_on_worker",
    summary="Run a job on one worker and answer with its outcome",
    **described(shapes.RunOut, body=shapes.RunIn, errors=(404, 409), example=_RUN),
)
async def run_on_worker(request: Request, who: Runner) -> Response:
    said = await read(request, shapes.RunIn)
    link = who.manager.workers.get(said.worker_id)
    if who.key.scope is Scope.NODE:
        if who.key.node_id != link.worker.node_id:
            raise Forbidden("this worker belongs to another node")
        if said.job is not None:
            word = request.headers.get(CALL_PASS)
            who.manager.gateway.requests.admit(word, said.worker_id)
    if said.job is not None:
        task = await submit(request, who, said.job, said.worker_id)
    else:
        task = await _known(who, said)
    task = await ended(who, task)
    told = render.job_status(task)
    return answer(shapes.RunOut(job_id=task.id, status=told.status, output=told.output))


async def _known(who: Caller, said: shapes.RunIn) -> Task:
    task = await who.manager.tasks.reads.find(said.job_id or "")
    if task is None or task.spec.options.only_on != said.worker_id:
        raise TaskNotFound(f"no job {said.job_id!r} for this worker")
    return task


@router.post(
    "/shutdown_worker",
    summary="Stop the worker of this name",
    **described(
        dict, body=shapes.NamedWorker, errors=(404,), example={"worker_name": "mine"}
    ),
)
async def shutdown_worker(request: Request, who: Operator) -> Response:
    said = await read(request, shapes.NamedWorker)
    await who.manager.workers.stops.by_name(said.worker_name, said.node_url)
    who.note("worker.stop", said.worker_name)
    return answer(None)


@router.post(
    "/shutdown_worker_by_id",
    summary="Stop a worker; its tasks run elsewhere",
    **described(
        dict, body=shapes.WorkerById, errors=(404,), example={"worker_id": "w-1"}
    ),
)
async def shutdown_worker_by_id(request: Request, who: Operator) -> Response:
    said = await read(request, shapes.WorkerById)
    await who.manager.workers.stops.by_id(said.worker_id, said.node_url)
    who.note("worker.stop", said.worker_id)
    return answer(None)


@router.post(
    "/shutdown_worker_by_port",
    summary="Stop the worker whose URL has this port",
    **described(
        dict, body=shapes.WorkerByPort, errors=(404,), example={"worker_port": 8092}
    ),
)
async def shutdown_worker_by_port(request: Request, who: Operator) -> Response:
    said = await read(request, shapes.WorkerByPort)
    await who.manager.workers.stops.by_port(said.worker_port, said.node_url)
    who.note("worker.stop", f"port {said.worker_port}")
    return answer(None)


@router.post(
    "/shutdown_all_workers",
    summary="Stop every worker of a node",
    **described(dict, body=shapes.NodeIn, errors=(404,), example=_NODE),
)
async def shutdown_all_workers(request: Request, who: Operator) -> Response:
    said = await read(request, shapes.NodeIn)
    await who.manager.workers.stops.all_of(said.node_url)
    who.note("worker.stop", said.node_url)
    return answer(None)


@router.post(
    "/shutdown_node",
    summary="Stop a node's agent and its workers",
    **described(Shutdown, body=shapes.NodeIn, errors=(404,), example=_NODE),
)
async def shutdown_node(request: Request, who: Operator) -> Response:
    said = await read(request, shapes.NodeIn)
    node_id = await who.manager.workers.stops.node(said.node_url)
    who.note("node.stop", node_id)
    return answer(Shutdown(shutdown=True))
