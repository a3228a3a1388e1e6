"""Worker types that are scaled by demand: their limits, and how each stands."""

from __future__ import annotations

import math
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from msgspec import Struct

from corral.api.body import answer, read
from corral.api.caller import Caller, caller
from corral.api.openapi import described
from corral.api.workers import render
from corral.core.access.key import Scope
from corral.manager.workers.scaling import ScaledTypeStatus
from corral.wire.workers import Scaling, TypeScaling, WorkerTypeInfo

router = APIRouter(tags=["scaling"])
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]


class LimitsIn(Struct, forbid_unknown_fields=True):
    """Without `max_workers` the type is not scaled any more."""

    min_workers: int = 0
    max_workers: int | None = None


def _shown(found: ScaledTypeStatus) -> TypeScaling:
    kind, now = found.kind, found.now
    wait_s = round(now.wait_s, 1) if math.isfinite(now.wait_s) else None
    return TypeScaling(
        worker_type=kind.name,
        job_type=kind.job_type,
        min_workers=kind.min_workers,
        max_workers=kind.max_workers or 0,
        workers=now.workers,
        serving=now.serving,
        starting=now.starting,
        leaving=found.leaving,
        waiting=now.waiting,
        predicted_wait_s=wait_s,
        blocked=now.blocked or None,
        last=found.last,
    )


@router.get(
    "/cluster/scaling",
    summary="Worker types that demand adds workers to and takes them from",
    **described(Scaling),
)
async def scaling(who: Reader) -> Response:
    autoscaling = who.manager.workers.scaling
    config, policy = autoscaling.config, autoscaling.config.policy
    return answer(
        Scaling(
            enabled=config.is_enabled,
            max_workers=policy.most,
            total_workers=len(who.manager.workers.all()),
            wait_s=policy.wait_s,
            idle_s=policy.idle_s,
            cooldown_s=policy.cooldown_s,
            types=[_shown(found) for found in autoscaling.all()],
        )
    )


@router.put(
    "/worker-types/{name}/scaling",
    summary="Between how many workers demand may choose",
    **described(
        WorkerTypeInfo,
        body=LimitsIn,
        errors=(404,),
        example={"min_workers": 0, "max_workers": 4},
    ),
)
async def set_limits(name: str, request: Request, who: Operator) -> Response:
    said = await read(request, LimitsIn)
    kind = await who.manager.workers.types.scale(
        name, said.min_workers, said.max_workers
    )
    who.note("worker_type.scale", name)
    return answer(render.worker_type(kind))
