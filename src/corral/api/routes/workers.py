"""/workers: what runs tasks; launching and stopping; and their own reports."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from msgspec import UNSET

from corral.api import model, node_model, render
from corral.api.deps import Caller, answer, caller, read
from corral.api.describe import described
from corral.core.job_type import check_name, job_type_of
from corral.core.key import Scope
from corral.core.node import NodeState
from corral.core.report import Outcome, OutcomeKind
from corral.core.task import TaskError
from corral.core.worker import WorkerSpec, WorkerState
from corral.engine.factory import queue_name
from corral.errors import Conflict, Forbidden, InvalidField
from corral.manager.clock import new_id
from corral.manager.reporting import Report
from corral.manager.secret import worker_secret
from corral.manager.state import WorkerLink
from corral.store.base import LogChunk

router = APIRouter(prefix="/workers", tags=["workers"])
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]
OwnNode = Annotated[Caller, Depends(caller(Scope.NODE))]
MAX_COUNT = 256


@router.get("", summary="All workers", **described(model.WorkerListOut))
async def list_workers(who: Reader, status: str | None = None) -> Response:
    rows = [render.worker(link) for link in who.manager.cluster.workers.values()]
    shown = [r for r in rows if status in (None, r.status, r.state)]
    online = sum(r.status in ("online", "busy") for r in rows)
    return answer(model.WorkerListOut(shown, len(rows), online, len(rows) - online))


@router.get(
    "/{worker_id}", summary="One worker", **described(model.WorkerOut, errors=(404,))
)
async def get_worker(worker_id: str, who: Reader) -> Response:
    return answer(render.worker(who.manager.registry.worker(worker_id)))


@router.post(
    "",
    summary="Launch workers of a class on a node",
    **described(
        model.WorkersLaunched,
        body=model.WorkerIn,
        status=201,
        errors=(400, 404, 409, 422),
        example={"worker_class": "corral.worker.builtin:EchoWorker", "count": 2},
    ),
)
async def launch(request: Request, who: Operator) -> Response:
    wanted = await read(request, model.WorkerIn)
    if not 1 <= wanted.count <= MAX_COUNT:
        raise InvalidField(f"count must be 1 to {MAX_COUNT}", field="count")
    if not 1 <= wanted.concurrency <= MAX_COUNT:
        raise InvalidField(f"concurrency must be 1 to {MAX_COUNT}", field="concurrency")
    types = tuple(wanted.job_types) or (job_type_of(wanted.worker_class),)
    for name in types:
        check_name(name, "job_types")
    node_id = wanted.node_id or _emptiest_node(who)
    links = []
    for number in range(wanted.count):
        suffix = f"-{number}" if wanted.count > 1 else ""
        name = f"{wanted.name}{suffix}" if wanted.name else new_id(types[0])
        spec = WorkerSpec(
            f"api-{check_name(name, 'name')}",
            wanted.worker_class,
            types,
            wanted.params,
            wanted.concurrency,
        )
        links.append(await who.manager.registry.launch(node_id, spec))
    who.note("worker.launch", node_id, worker_class=wanted.worker_class)
    return answer(model.WorkersLaunched([render.worker(x) for x in links]), 201)


def _emptiest_node(who: Caller) -> str:
    nodes = [
        n
        for n in who.manager.cluster.nodes.values()
        if n.node.state is NodeState.ONLINE
    ]
    if not nodes:
        raise Conflict("no node is online; join one with 'corral join'")
    registry = who.manager.registry
    best = min(nodes, key=lambda n: (len(registry.of_node(n.node.id)), n.node.id))
    return best.node.id


@router.delete(
    "/{worker_id}",
    summary="Stop a worker; its tasks run elsewhere",
    **described(model.WorkerStopped, errors=(404,)),
)
async def stop(worker_id: str, who: Operator) -> Response:
    await who.manager.registry.stop(worker_id)
    who.note("worker.stop", worker_id)
    return answer(model.WorkerStopped("the worker is stopping", worker_id))


def _own(who: Caller, worker_id: str) -> WorkerLink:
    link = who.manager.registry.worker(worker_id)
    if link.worker.node_id != who.key.node_id:
        raise Forbidden("this worker belongs to another node")
    return link


@router.post("/{worker_id}/register", include_in_schema=False)
async def register(worker_id: str, request: Request, who: OwnNode) -> Response:
    link = _own(who, worker_id)
    said = await read(request, node_model.WorkerRegisterIn)
    node = who.manager.registry.node(link.worker.node_id)
    if said.epoch != node.node.epoch:
        raise Conflict("this agent's epoch is over", epoch=node.node.epoch)
    worker = await who.manager.registry.register_worker(worker_id, said.pid)
    incarnation = worker.incarnation or ""
    secret = worker_secret(who.manager.config.cluster_secret, worker_id, incarnation)
    return answer(
        node_model.WorkerRegisterOut(
            incarnation,
            secret,
            queue_name(worker.node_id, worker_id),
            worker.spec.concurrency,
            list(worker.spec.job_types),
        )
    )


@router.post("/{worker_id}/reports", include_in_schema=False)
async def report(worker_id: str, request: Request, who: OwnNode) -> Response:
    link = _own(who, worker_id)
    said = await read(request, node_model.ReportIn)
    told = _report(said)
    if said.state is not None and said.incarnation == link.worker.incarnation:
        state = WorkerState(said.state)
        who.manager.registry.set_serving(link, state, said.error)
    return answer(await who.manager.reporting.report(link, told))


def _report(said: node_model.ReportIn) -> Report:
    try:
        outcomes = [_outcome(o) for o in said.outcomes]
    except ValueError as e:
        raise InvalidField(str(e), field="outcomes") from e
    return Report(
        incarnation=said.incarnation,
        report_id=said.report_id,
        outcomes=outcomes,
        started=[(t, a, _moment(at)) for t, a, at in said.started],
        progress=said.progress,
        logs=[
            LogChunk(x.task_id, x.attempt, x.seq, bytes(x.lines).decode())
            for x in said.logs
        ],
        wants_order=said.wants_order,
    )


def _moment(epoch_s: float) -> datetime:
    return datetime.fromtimestamp(epoch_s, UTC)


def _outcome(said: node_model.OutcomeIn) -> Outcome:
    error = said.error
    return Outcome(
        said.task_id,
        said.attempt,
        OutcomeKind(said.kind),
        None if said.result is UNSET else bytes(said.result).decode(),
        TaskError(error.kind, error.message, error.traceback) if error else None,
        _moment(said.started_at) if said.started_at else None,
        said.duration_s,
    )
