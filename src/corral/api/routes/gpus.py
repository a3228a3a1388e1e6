"""/nodes/{id}/gpus: what operators say of a node's cards."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from corral.api.deps import Caller, answer, caller
from corral.api.describe import described
from corral.core.access.key import Scope
from corral.core.nodes.gpu import Gpu
from corral.manager.nodes.heartbeat import release_gpu

router = APIRouter(prefix="/nodes", tags=["nodes"])
Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]


@router.post(
    "/{node_id}/gpus/{gpu_id}/release",
    summary="Lift the quarantine of a GPU",
    **described(Gpu, errors=(404, 409)),
)
async def release(node_id: str, gpu_id: str, who: Operator) -> Response:
    card = release_gpu(who.manager.registry.node(node_id), gpu_id)
    who.note("gpu.release", node_id, gpu_id=card.id)
    return answer(card)
