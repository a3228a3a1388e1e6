"""The job API's routing: apps, job types sent to endpoints, and their queues."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from corral.api.body import answer, read
from corral.api.caller import Caller, caller
from corral.api.gateway.routes import register
from corral.api.gateway.shapes import AppIn
from corral.api.job_api import shapes
from corral.api.openapi import described
from corral.core.access.key import Scope

router = APIRouter(tags=["job API"])
Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]
Admin = Annotated[Caller, Depends(caller(Scope.ADMIN))]


@router.post(
    "/register_app",
    summary="Let the gateway forward to an HTTP service under a name",
    **described(
        dict,
        body=shapes.RegisterAppIn,
        example={"name": "echo", "url": "http://127.0.0.1:9000"},
    ),
)
async def register_app(request: Request, who: Admin) -> Response:
    said = await read(request, shapes.RegisterAppIn)
    await register(request, who, AppIn(said.name, said.url))
    return answer(None)


@router.post(
    "/register_job_to_endpoint",
    summary="Send jobs of a type to an endpoint of an app",
    **described(
        dict,
        body=shapes.JobToEndpoint,
        example={"job_type": "remote_echo", "endpoint": "echo/run"},
    ),
)
async def register_job_to_endpoint(request: Request, who: Operator) -> Response:
    said = await read(request, shapes.JobToEndpoint)
    target = said.endpoint.strip("/")
    await who.manager.queues.job_types.route(said.job_type, target)
    who.note("job_type.route", said.job_type, endpoint=target)
    return answer(None)


@router.post(
    "/clear_databases",
    summary="Cancel and remove every job, dead letter, worker type and target",
    **described(dict),
)
async def clear_databases(who: Admin) -> Response:
    gone = await who.manager.upkeep.clear(who.key.id)
    who.note("cluster.clear", "", **gone)
    return answer(None)


@router.post(
    "/clear_job_schema_queue",
    summary="Cancel every job of a type that waits",
    **described(
        dict, body=shapes.SchemaName, errors=(404,), example={"job_schema_name": "echo"}
    ),
)
async def clear_job_schema_queue(request: Request, who: Operator) -> Response:
    said = await read(request, shapes.SchemaName)
    cancelled = await who.manager.queues.job_types.clear(said.job_schema_name)
    who.note("job_type.clear", said.job_schema_name, cancelled=cancelled)
    return answer(None)
