"""/models: which worker has which model in memory, and what it is asked to have."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from corral.api.body import answer, read
from corral.api.caller import Caller, caller
from corral.api.models import shapes
from corral.api.openapi import described
from corral.core.access.key import Scope
from corral.core.tasks.job_type import check_name
from corral.core.tasks.priority import parse_priority
from corral.manager.clock import new_id
from corral.manager.cluster.state import WorkerLink
from corral.manager.models.memory import ModelMemory
from corral.wire.models import (
    AssignedModels,
    ModelAssignment,
    ModelInfo,
    UnloadedModel,
    WorkerModels,
    WorkerModelsList,
)

router = APIRouter(prefix="/models", tags=["models"])
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]


@router.get(
    "/assignments",
    summary="Models that workers have, or are to have",
    **described(WorkerModelsList),
)
async def assignments(who: Reader) -> Response:
    models = who.manager.models.memory
    rows = [_worker(models, link) for link in who.manager.workers.all()]
    return answer(WorkerModelsList(assignments=[row for row in rows if row.models]))


def _worker(models: ModelMemory, link: WorkerLink) -> WorkerModels:
    return WorkerModels(
        worker_id=link.id,
        worker_name=link.worker.spec.name,
        node_id=link.worker.node_id,
        memory=link.shelf.room_mb,
        memory_usage=link.shelf.own_mb,
        models=[_model(models, link, name) for name in models.of_worker(link)],
    )


def _model(models: ModelMemory, link: WorkerLink, name: str) -> ModelInfo:
    held = link.shelf.held.get(name)
    load = models.expected_load(link, name)
    return ModelInfo(
        name=name,
        status=models.status(link, name).status,
        memory_usage=link.shelf.takes_mb(held) if held else None,
        load_time=held.load_s if held else None,
        last_used=held.last_used if held else None,
        pinned=(link.id, name) in models.pins,
        estimated_load_time=load.value if load else None,
        loads=load.count if load else 0,
    )


@router.post(
    "/assign",
    summary="Load a model on workers, or have them keep it",
    **described(
        AssignedModels,
        body=shapes.AssignIn,
        errors=(400, 404, 409, 422),
        example={"model_name": "llama", "worker_ids": ["w-0123456789"], "pin": True},
    ),
)
async def assign(request: Request, who: Operator) -> Response:
    wanted = await read(request, shapes.AssignIn)
    name = check_name(wanted.model_name, "model_name")
    found = await who.manager.models.memory.assign(
        name,
        wanted.worker_ids,
        preload=wanted.preload,
        pin=wanted.pin,
        priority=parse_priority(wanted.priority),
    )
    who.note("model.assign", name, worker_ids=wanted.worker_ids, pin=wanted.pin)
    rows = [ModelAssignment.of(told, estimated_time=told.estimated_s) for told in found]
    return answer(
        AssignedModels(assignment_id=new_id("a"), model_name=name, assignments=rows)
    )


@router.post(
    "/unload",
    summary="Have workers drop a model, once nothing uses it",
    **described(
        UnloadedModel,
        body=shapes.UnloadIn,
        errors=(400, 404, 409, 422),
        example={"model_name": "llama"},
    ),
)
async def unload(request: Request, who: Operator) -> Response:
    wanted = await read(request, shapes.UnloadIn)
    name = check_name(wanted.model_name, "model_name")
    gone = await who.manager.models.memory.unload(
        name, wanted.worker_ids, force=wanted.force
    )
    who.note("model.unload", name, worker_ids=gone, force=wanted.force)
    message = f"{len(gone)} worker(s) drop {name}" if gone else f"nobody has {name}"
    return answer(
        UnloadedModel(message=message, model_name=name, affected_workers=gone)
    )
