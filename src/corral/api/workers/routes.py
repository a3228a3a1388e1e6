"""/workers: what runs tasks; launching and stopping; and their own reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from corral.api.body import answer, read
from corral.api.caller import Caller, caller
from corral.api.openapi import described
from corral.api.workers import render, shapes
from corral.api.workers.intake import MAX_COUNT, worker_spec
from corral.core.access.key import Scope
from corral.core.nodes.worker import (
    LAUNCHED,
    MOVABLE,
    REST_STATE,
    WorkerSpec,
    WorkerState,
)
from corral.errors import Forbidden, InvalidField
from corral.manager.clock import new_id
from corral.manager.cluster.state import WorkerLink
from corral.wire.orders import SupervisorStart, WorkerReport
from corral.wire.workers import Registration, WorkerRestart

router = APIRouter(prefix="/workers", tags=["workers"])
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]
OwnNode = Annotated[Caller, Depends(caller(Scope.NODE))]
_STATUSES = {*map(str, WorkerState), *REST_STATE.values()}


@router.get("", summary="All workers", **described(shapes.WorkerListOut, errors=(422,)))
async def list_workers(
    who: Reader,
    status: str | None = None,
    gpu_type: Annotated[str | None, Query(max_length=256)] = None,
    node_id: Annotated[str | None, Query(max_length=256)] = None,
    limit: Annotated[int | None, Query(ge=1, le=1000)] = None,
    offset: Annotated[int, Query(ge=0, le=1 << 31)] = 0,
) -> Response:
    if status is not None and status not in _STATUSES:
        words = ", ".join(sorted(_STATUSES))
        raise InvalidField(f"status must be one of {words}", field="status")
    workers = who.manager.workers
    every = workers.all()
    links = every if node_id is None else workers.of_node(node_id)
    asked = [link for link in links if _is_asked(link, status)]
    rows = [render.worker(workers.figures(link)) for link in asked]
    if gpu_type is not None:
        rows = [r for r in rows if render.has_gpu(r, gpu_type)]
    rows = rows[offset : None if limit is None else offset + limit]
    total = len(every)
    states = (REST_STATE[link.worker.state] for link in every)
    online = sum(state in ("online", "busy") for state in states)
    return answer(
        shapes.WorkerListOut(
            workers=rows, total=total, online=online, offline=total - online
        )
    )


def _is_asked(link: WorkerLink, status: str | None) -> bool:
    state = link.worker.state
    return status in (None, REST_STATE[state], str(state))


@router.get(
    "/{worker_id}",
    summary="One worker",
    **described(shapes.WorkerDetail, errors=(404,)),
)
async def get_worker(worker_id: str, who: Reader) -> Response:
    manager = who.manager
    figures = manager.workers.figures(manager.workers.get(worker_id))
    return answer(render.worker_detail(figures, manager.now(), manager.started_at))


@router.post(
    "",
    summary="Launch workers of a class on a node",
    **described(
        shapes.WorkersLaunched,
        body=shapes.WorkerIn,
        status=201,
        errors=(400, 404, 409, 422),
        example={"worker_class": "corral.worker.builtin:EchoWorker", "count": 2},
    ),
)
async def launch(request: Request, who: Operator) -> Response:
    wanted = await read(request, shapes.WorkerIn)
    if not 1 <= wanted.count <= MAX_COUNT:
        raise InvalidField(f"count must be 1 to {MAX_COUNT}", field="count")
    specs = [_spec(wanted, number) for number in range(wanted.count)]
    workers = who.manager.workers
    links = await workers.launch(specs, wanted.node_id)
    node_id = links[0].worker.node_id
    who.note("worker.launch", node_id, worker_class=wanted.worker_class)
    rows = [render.worker(workers.figures(link)) for link in links]
    return answer(shapes.WorkersLaunched(rows), 201)


def _spec(wanted: shapes.WorkerIn, number: int) -> WorkerSpec:
    suffix = f"-{number}" if wanted.count > 1 else ""
    named = f"{wanted.name}{suffix}" if wanted.name else ""
    spec = worker_spec(named, wanted, wanted.gpus)
    name = spec.name or new_id(spec.job_types[0])
    prefix = LAUNCHED if wanted.node_id else MOVABLE
    return replace(spec, name=f"{prefix}{name}")


@router.delete(
    "/{worker_id}",
    summary="Stop a worker; its tasks run elsewhere",
    **described(shapes.WorkerStopped, errors=(404,)),
)
async def stop(worker_id: str, who: Operator) -> Response:
    await who.manager.workers.registry.stop(worker_id)
    who.note("worker.stop", worker_id)
    return answer(shapes.WorkerStopped("the worker is stopping", worker_id))


@router.post(
    "/{worker_id}/restart",
    summary="Start a worker anew under its id, when it has finished what it runs",
    **described(WorkerRestart, errors=(404,)),
)
async def restart(worker_id: str, who: Operator) -> Response:
    downtime_s = await who.manager.workers.restart(worker_id)
    who.note("worker.restart", worker_id)
    return answer(
        WorkerRestart(
            worker_id=worker_id,
            message="the worker is restarting",
            estimated_downtime=downtime_s,
        )
    )


def own_worker(who: Caller, worker_id: str) -> WorkerLink:
    link = who.manager.workers.get(worker_id)
    if link.worker.node_id != who.key.node_id:
        raise Forbidden("this worker belongs to another node")
    return link


@router.post("/{worker_id}/register", include_in_schema=False)
async def register(worker_id: str, request: Request, who: OwnNode) -> Response:
    own_worker(who, worker_id)
    said = await read(request, SupervisorStart)
    registry = who.manager.workers.registry
    given = await registry.admit(worker_id, said.epoch, said.pid)
    who.note("worker.register", worker_id, pid=said.pid)
    return answer(
        Registration.of(
            given,
            concurrency=given.worker.spec.concurrency,
            job_types=list(given.worker.spec.job_types),
        )
    )


@router.post("/{worker_id}/reports", include_in_schema=False)
async def report(worker_id: str, request: Request, who: OwnNode) -> Response:
    own_worker(who, worker_id)
    said = await read(request, WorkerReport)
    return answer(await who.manager.workers.report(worker_id, said))
