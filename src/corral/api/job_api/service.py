"""What every service of the job API answers about itself. All POST."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from corral.api.body import answer
from corral.api.caller import Caller, caller
from corral.api.openapi import described
from corral.core.access.key import Scope
from corral.errors import Conflict
from corral.wire.job_api import (
    ClassName,
    Endpoints,
    Heartbeat,
    HeartbeatAnswer,
    PidFile,
    ServerId,
    ServiceStatus,
    Shutdown,
)

router = APIRouter(tags=["job API"])
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
Admin = Annotated[Caller, Depends(caller(Scope.ADMIN))]
CLASS = "ClusterManager"


@router.post("/endpoints", summary="Names of all calls", **described(Endpoints))
async def endpoints(request: Request, who: Reader) -> Response:
    paths = request.app.openapi()["paths"]
    names = sorted(p.strip("/") for p, ways in paths.items() if "post" in ways)
    return answer(Endpoints(endpoints=[n for n in names if "/" not in n]))


@router.post("/status", summary="Is it available?", **described(ServiceStatus))
async def status(who: Reader) -> Response:
    return answer(ServiceStatus(status="Available"))


@router.post("/heartbeat", summary="A sign of life", **described(HeartbeatAnswer))
async def heartbeat(who: Reader) -> Response:
    nodes, workers = who.manager.nodes.all(), who.manager.workers.all()
    details = {"nodes": len(nodes), "workers": len(workers)}
    server_id = who.manager.server_id()
    beat = Heartbeat(
        status="Available",
        server_id=server_id,
        message="all is well",
        details=details,
    )
    return answer(HeartbeatAnswer(heartbeat=beat))


@router.post("/server_id", summary="Which server this is", **described(ServerId))
async def server_id(who: Reader) -> Response:
    return answer(ServerId(server_id=who.manager.server_id()))


@router.post("/class_name", summary="What kind it is", **described(ClassName))
async def class_name(who: Reader) -> Response:
    return answer(ClassName(class_name=CLASS))


@router.post("/pid_file", summary="Always null: there is none", **described(PidFile))
async def pid_file(who: Reader) -> Response:
    return answer(PidFile())


@router.post(
    "/shutdown",
    summary="Stop this Corral; tasks stay",
    **described(Shutdown, errors=(409,)),
)
async def shutdown(request: Request, who: Admin) -> Response:
    stop = getattr(request.app.state, "stop", None)
    if stop is None:
        raise Conflict("this server cannot be stopped from here")
    who.note("cluster.shutdown", "cluster")
    stop()
    return answer(Shutdown(shutdown=True))
