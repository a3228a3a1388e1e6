"""/health, /cluster: the cluster as a whole."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from corral import __version__
from corral.api.body import answer
from corral.api.caller import Caller, caller, manager_of
from corral.api.openapi import described
from corral.core.access.key import Scope
from corral.core.tasks.task import State
from corral.wire.access import WebhookSecret
from corral.wire.insight import ClusterStatus, DrainInfo, HealthInfo

router = APIRouter()
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
Admin = Annotated[Caller, Depends(caller(Scope.ADMIN))]


@router.get(
    "/health",
    summary="Is it up?",
    tags=["cluster"],
    **described(HealthInfo, is_open=True),
)
async def health(request: Request) -> Response:
    now = manager_of(request).now()
    return answer(HealthInfo(status="healthy", timestamp=now, version=__version__))


@router.get(
    "/openapi.json",
    summary="This description",
    tags=["cluster"],
    **described(dict),
)
async def openapi(request: Request, who: Reader) -> Response:
    return answer(request.app.openapi())


@router.get(
    "/cluster/status",
    summary="The cluster in numbers",
    tags=["cluster"],
    **described(ClusterStatus),
)
async def status(who: Reader) -> Response:
    seen = await who.manager.overview()
    counts = {str(state): count for state, count in seen.tasks.items()}
    free_mb = seen.memory_mb - seen.memory_used_mb
    return answer(
        ClusterStatus(
            cluster_id=who.manager.config.cluster_name,
            status="operational" if seen.is_well else "degraded",
            total_workers=seen.workers,
            active_workers=seen.serving,
            queued_tasks=counts.get(State.QUEUED, 0),
            running_tasks=counts.get(State.ASSIGNED, 0) + counts.get(State.RUNNING, 0),
            tasks=counts,
            total_nodes=seen.nodes,
            online_nodes=seen.online,
            gpu_utilization=seen.gpu_use_percent,
            gpu_memory_total_mb=seen.gpu_total_mb,
            gpu_memory_offered_mb=seen.gpu_offered_mb,
            total_memory_mb=seen.memory_mb,
            available_memory_mb=free_mb,
            uptime_s=seen.uptime_s,
            health=seen.health,
            version=__version__,
            # As existing documents name them; numbers, in MB and seconds.
            total_memory=seen.memory_mb,
            available_memory=free_mb,
            uptime=seen.uptime_s,
        )
    )


@router.post(
    "/cluster/drain",
    summary="Hand out nothing new; running tasks finish",
    tags=["cluster"],
    **described(DrainInfo),
)
async def drain(who: Admin, resume: bool = False) -> Response:
    who.note("cluster.resume" if resume else "cluster.drain", "cluster")
    return answer(DrainInfo(running=who.manager.tasks.drain(not resume)))


@router.get(
    "/cluster/webhook-secret",
    summary="What signs the calls of webhooks",
    tags=["cluster"],
    **described(WebhookSecret),
)
async def webhook_secret(who: Admin) -> Response:
    who.note("webhook_secret.read", "cluster")
    return answer(WebhookSecret(secret=who.manager.outbound.webhooks.secret))
