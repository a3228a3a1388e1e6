"""Worker types that are scaled by demand: their limits, and how each stands."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from msgspec import Struct

from corral.api.body import answer, read
from corral.api.caller import Caller, caller
from corral.api.openapi import described
from corral.api.workers import render, shapes
from corral.core.access.key import Scope
from corral.manager.workers.scaling import ScaledTypeStatus, ScalingStep

router = APIRouter(tags=["scaling"])
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]


class ScaledOut(Struct):
    """`event` is cluster_scaled_up or cluster_scaled_down."""

    at: datetime
    event: str
    worker_id: str
    node_id: str
    reason: str


class TypeScalingOut(Struct):
    """`predicted_wait_s` is null while nobody serves what waits, and 0 without any.

    `blocked` says why there are no more workers although more are wanted.
    """

    worker_type: str
    job_type: str | None
    min_workers: int
    max_workers: int
    workers: int
    serving: int
    starting: int
    leaving: int
    waiting: int
    predicted_wait_s: float | None
    blocked: str | None
    last: ScaledOut | None


class ScalingOut(Struct):
    """`max_workers` is for the whole cluster."""

    enabled: bool
    max_workers: int
    total_workers: int
    wait_s: float
    idle_s: float
    cooldown_s: float
    types: list[TypeScalingOut]


class LimitsIn(Struct, forbid_unknown_fields=True):
    """Without `max_workers` the type is not scaled any more."""

    min_workers: int = 0
    max_workers: int | None = None


def _shown(found: ScaledTypeStatus) -> TypeScalingOut:
    kind, now, last = found.kind, found.now, found.last
    wait_s = round(now.wait_s, 1) if math.isfinite(now.wait_s) else None
    return TypeScalingOut(
        kind.name,
        kind.job_type,
        kind.min_workers,
        kind.max_workers or 0,
        now.workers,
        now.serving,
        now.starting,
        found.leaving,
        now.waiting,
        wait_s,
        now.blocked or None,
        _last(last) if last is not None else None,
    )


def _last(last: ScalingStep) -> ScaledOut:
    return ScaledOut(last.at, last.event, last.worker_id, last.node_id, last.reason)


@router.get(
    "/cluster/scaling",
    summary="Worker types that demand adds workers to and takes them from",
    **described(ScalingOut),
)
async def scaling(who: Reader) -> Response:
    autoscaling = who.manager.workers.scaling
    config, policy = autoscaling.config, autoscaling.config.policy
    return answer(
        ScalingOut(
            config.is_enabled,
            policy.most,
            len(who.manager.workers.all()),
            policy.wait_s,
            policy.idle_s,
            policy.cooldown_s,
            [_shown(found) for found in autoscaling.all()],
        )
    )


@router.put(
    "/worker-types/{name}/scaling",
    summary="Between how many workers demand may choose",
    **described(
        shapes.WorkerTypeOut,
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
