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
from corral.wire.models import RebalanceInfo, RebalanceOperation

router = APIRouter(tags=["cluster"])
Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]


@router.post(
    "/cluster/rebalance",
    summary="Move models to workers where they are worth more",
    **described(
        RebalanceInfo,
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


def _out(found: Rebalance, strategy: Strategy) -> RebalanceInfo:
    count = len(found.moves)
    message = f"{count} model(s) {'would go' if found.status == 'dry_run' else 'go'}"
    if not count:
        message = "no model would be worth more elsewhere than its move costs"
    return RebalanceInfo(
        rebalance_id=found.rebalance_id,
        status=found.status,
        message=message,
        strategy=str(strategy),
        estimated_duration=found.estimated_s,
        affected_workers=found.workers,
        operations=[RebalanceOperation(**row) for row in rows(found.moves)],
    )
