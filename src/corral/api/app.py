"""Puts the FastAPI application together around one manager."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import FastAPI

from corral import __version__
from corral.api import describe, errors
from corral.api.edge import Edge
from corral.api.http_meter import HttpMeter
from corral.api.routes import (
    alerts,
    artifacts,
    breakers,
    catalogue,
    cluster,
    engine,
    execs,
    explain,
    gateway,
    gpus,
    job_nodes,
    job_routes,
    job_types,
    job_workers,
    jobs,
    journal,
    keys,
    live,
    logs,
    mcp,
    metrics,
    models,
    node_life,
    nodes,
    objects,
    openai,
    prometheus,
    rebalance,
    scaling,
    schedules,
    secrets,
    service,
    shares,
    simulate,
    streams,
    task_bulk,
    tasks,
    ui,
    usage,
    workers,
)
from corral.manager.app import Manager

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]
ROOMS = (
    tasks,
    task_bulk,
    logs,
    streams,
    openai,
    workers,
    models,
    catalogue,
    gpus,
    nodes,
    node_life,
    breakers,
    cluster,
    rebalance,
    journal,
    simulate,
    keys,
    explain,
    alerts,
    live,
    metrics,
    prometheus,
    engine,
    objects,
    artifacts,
    secrets,
    execs,
    jobs,
    job_nodes,
    job_routes,
    job_workers,
    service,
    mcp,
    job_types,
    scaling,
    shares,
    schedules,
    gateway,
    usage,
    ui,
)


def build(
    lifespan: Lifespan,
    *,
    task_body_limit: int = 1 << 20,
    batch_body_limit: int = 16 << 20,
    debug: bool = False,
) -> FastAPI:
    """The application; `lifespan` sets `app.state.manager` before serving."""
    app = FastAPI(
        title="Corral",
        version=__version__,
        description="One place to run work on many GPU machines.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        debug=debug,
    )
    app.state.task_body_limit = task_body_limit
    for room in ROOMS:
        # Not `include_router`: it makes every route anew for every application, with
        # the first request, and nothing of ours differs between them.
        app.router.routes.extend(room.router.routes)
    errors.install(app)
    describe.install(app)
    ui.install(app)
    gateway.install(app)
    app.state.http_meter = meter = HttpMeter()
    app.add_middleware(Edge, body_limit=batch_body_limit, meter=meter)
    return app


def around(manager: Manager) -> Lifespan:
    """A lifespan that starts and stops a manager made elsewhere."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.manager = manager
        await manager.start()
        try:
            yield
        finally:
            await manager.stop()

    return lifespan
