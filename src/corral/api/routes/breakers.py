"""/nodes/{id}/breakers: try again at once what a node has stopped starting."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from corral.api import model
from corral.api.deps import Caller, answer, caller, read
from corral.api.describe import described
from corral.core.access.key import Scope
from corral.manager.nodes.heartbeat import reset_breakers

router = APIRouter(prefix="/nodes", tags=["nodes"])
Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]


@router.post(
    "/{node_id}/breakers/reset",
    summary="Close a node's breakers and start their workers at once",
    **described(
        model.BreakersReset,
        body=model.BreakerResetIn,
        errors=(400, 404, 422),
        example={"key": "my_workers:Detector"},
    ),
)
async def reset(node_id: str, request: Request, who: Operator) -> Response:
    wanted = await read(request, model.BreakerResetIn)
    manager = who.manager
    done = await reset_breakers(
        manager.registry, manager.restarting, node_id, wanted.key
    )
    who.note("breaker.reset", node_id, keys=sorted(done))
    workers = sorted(worker for some in done.values() for worker in some)
    return answer(model.BreakersReset(node_id, sorted(done), workers))
