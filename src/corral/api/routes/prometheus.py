"""/metrics: the cluster's figures as Prometheus reads them."""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from corral.api.deps import caller, manager_of
from corral.api.describe import described
from corral.core.access.key import Scope
from corral.manager.insight import gauges
from corral.manager.insight.prometheus import CONTENT_TYPE, exposition

router = APIRouter()
_reader = caller(Scope.READ)
_DESCRIBED = described(dict)
_TEXT = {"text/plain": {"schema": {"type": "string"}}}
_DESCRIBED["openapi_extra"]["responses"]["200"]["content"] = _TEXT


async def _allowed(request: Request) -> None:
    """Anybody, where the settings say so; else who may read."""
    if not manager_of(request).config.is_metrics_public:
        await _reader(request)


@router.get(
    "/metrics",
    summary="Figures for Prometheus, in its text format",
    tags=["cluster"],
    **_DESCRIBED,
)
async def metrics(
    request: Request, _may: Annotated[None, Depends(_allowed)]
) -> Response:
    manager = manager_of(request)
    parts = []
    for family in chain(
        manager.cluster.meters.families(),
        request.app.state.http_meter.families(),
        gauges.read(manager),
    ):
        parts.append(exposition(family))
        # Hundreds of nodes make a long text: others have their turn meanwhile.
        await asyncio.sleep(0)
    return Response("".join(parts), headers={"content-type": CONTENT_TYPE})
