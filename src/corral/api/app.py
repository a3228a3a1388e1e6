"""Puts the FastAPI application together around one manager."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import FastAPI

from corral import __version__
from corral.api import cluster, errors, openapi, ui
from corral.api.access import audit, keys, secrets
from corral.api.events import alerts, history, live
from corral.api.gateway import forward
from corral.api.gateway import routes as gateway
from corral.api.insight import metrics, simulate, usage
from corral.api.job_api import apps as job_apps
from corral.api.job_api import jobs, service
from corral.api.job_api import nodes as job_nodes
from corral.api.job_api import workers as job_workers
from corral.api.mcp import routes as mcp
from corral.api.middleware import Edge, HttpMeter
from corral.api.models import catalogue, memory, rebalance
from corral.api.nodes import agent, tunnel
from corral.api.nodes import routes as nodes
from corral.api.openai import routes as openai
from corral.api.output import artifacts, logs, objects, stream
from corral.api.output import exec as execs
from corral.api.queues import job_types, schedules, shares
from corral.api.site import SiteGuard, SiteRules
from corral.api.tasks import bulk, explain
from corral.api.tasks import routes as tasks
from corral.api.workers import routes as workers
from corral.api.workers import scaling
from corral.manager.app import Manager

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]
# The first route that fits answers: `memory` stands before `catalogue`, whose
# /models/{name} would take its words for names.
ROOMS = (
    *(tasks, bulk, explain),
    *(logs, stream, execs, artifacts, objects),
    *(workers, scaling),
    *(nodes, agent, tunnel),
    *(memory, catalogue, rebalance),
    *(job_types, schedules, shares),
    *(history, live, alerts),
    *(keys, secrets, audit),
    *(cluster, metrics, usage, simulate),
    *(jobs, job_nodes, job_apps, job_workers, service),
    *(openai, mcp, gateway, ui),
)


def build(
    lifespan: Lifespan,
    *,
    task_body_limit: int = 1 << 20,
    batch_body_limit: int = 16 << 20,
    site: SiteRules | None = None,
) -> FastAPI:
    """The application; `lifespan` sets `app.state.manager` before serving."""
    site = site or SiteRules()
    app = FastAPI(
        title="Corral",
        version=__version__,
        description="One place to run work on many GPU machines.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.task_body_limit = task_body_limit
    app.state.site = site
    for room in ROOMS:
        # Not `include_router`: it makes every route anew for every application, with
        # the first request, and nothing of ours differs between them.
        app.router.routes.extend(room.router.routes)
    errors.install(app)
    openapi.install(app)
    ui.install(app)
    forward.install(app)
    app.state.http_meter = meter = HttpMeter()
    # The one added last is passed first.
    app.add_middleware(SiteGuard, rules=site)
    app.add_middleware(
        Edge,
        body_limit=batch_body_limit,
        meter=meter,
        revoked=errors.refuse_revoked,
    )
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
