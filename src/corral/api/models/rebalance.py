"""/cluster/rebalance: models go to workers where they are worth more."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from corral.api.body import answer, decode
from corral.api.caller import Caller, caller
from corral.api.models import shapes
from corral.api.openapi import described
from corral.core.access.key import Scope
from corral.errors import InvalidField
from corral.manager.models.rebalance_prefetch import Rebalance, rows
from corral.scheduler.models.rebalance import Strategy

router = APIRouter(tags=["cluster"])
Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]


@router.post(
    "/cluster/rebalance",
    summary="Move models to workers where they are worth more",
    **described(
        shapes.RebalanceOut,
        body=shapes.RebalanceIn,
        errors=(400, 409, 422),
        example={"strategy": "memory_optimized", "dry_run": True},
    ),
)
async def rebalance(request: Request, who: Operator) -> Response:
    wanted = decode(await request.body() or b"{}", shapes.RebalanceIn)
    strategy = _strategy(wanted.strategy)
    found = await who.manager.models.rebalancer.rebalance(
        strategy, who.key.id, force=wanted.force, dry_run=wanted.dry_run
    )
    if found.status == "initiated":
        who.note("cluster.rebalance", found.rebalance_id, strategy=str(strategy))
    return answer(_out(found, strategy))


def _strategy(name: str) -> Strategy:
    try:
        return Strategy(name)
    except ValueError:
        known = " or ".join(Strategy)
        raise InvalidField(
            f"no strategy {name!r}: say {known}", field="strategy"
        ) from None


def _out(found: Rebalance, strategy: Strategy) -> shapes.RebalanceOut:
    count = len(found.moves)
    message = f"{count} model(s) {'would go' if found.status == 'dry_run' else 'go'}"
    if not count:
        message = "no model would be worth more elsewhere than its move costs"
    return shapes.RebalanceOut(
        found.rebalance_id,
        found.status,
        message,
        str(strategy),
        found.estimated_s,
        found.workers,
        [shapes.RebalanceOperation(**row) for row in rows(found.moves)],
    )
