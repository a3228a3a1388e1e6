"""/apps: names for HTTP services, which `forward` then carries requests to.

An app can never stand before a route: names that one begins with are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response

from corral.api.body import answer, read
from corral.api.caller import Caller, caller
from corral.api.gateway import shapes
from corral.api.openapi import described
from corral.core.access import key
from corral.core.tasks.app import App
from corral.core.tasks.job_type import check_name
from corral.errors import InvalidField
from corral.manager.app import Manager
from corral.wire.queues import AppInfo, AppList, RouteInfo

router = APIRouter(prefix="/apps", tags=["gateway"])
Reader = Annotated[Caller, Depends(caller(key.Scope.READ))]
Admin = Annotated[Caller, Depends(caller(key.Scope.ADMIN))]

# Names that are, or will be, ours although no route begins with them.
_KEPT = frozenset({"api", "docs", "favicon.ico", "login", "metrics", "static", "ui"})
_KEPT_MORE = frozenset({"robots.txt", "v1", "ws"})


@router.get("", summary="Apps of the gateway", **described(AppList))
async def apps(who: Reader) -> Response:
    rows = who.manager.gateway.apps.all()
    return answer(AppList(apps=[_shown(who.manager, a) for a in rows]))


def _shown(manager: Manager, app: App) -> AppInfo:
    types = manager.gateway.apps.types_of(app)
    own = sorted(app.timeouts.items())
    routes = [RouteInfo(path=path, timeout=timeout_s) for path, timeout_s in own]
    return AppInfo.of(app, timeout=app.timeout_s, job_types=types, routes=routes)


@router.post(
    "",
    summary="Forward what comes under a name to an HTTP service",
    **described(
        AppInfo,
        body=shapes.AppIn,
        status=201,
        errors=(400, 422),
        example={"name": "resizer", "url": "http://127.0.0.1:9000", "timeout": 30},
    ),
)
async def add_app(request: Request, who: Admin) -> Response:
    row = await register(request, who, await read(request, shapes.AppIn))
    return answer(_shown(who.manager, row), 201)


async def register(request: Request, who: Caller, said: shapes.AppIn) -> App:
    """Check an app's name against our own routes, then save it."""
    name = check_name(said.name, "name")
    if name in taken_names(request.app):
        raise InvalidField(f"'{name}' is the name of a route of ours", field="name")
    row = await who.manager.gateway.apps.register(
        name, said.url, said.timeout, said.concurrency
    )
    who.note("app.save", name, url=said.url)
    return row


def taken_names(app: FastAPI) -> set[str]:
    """What routes begin with; FastAPI keeps included ones under their router."""

    def paths(routes: Iterable[Any]) -> Iterable[str]:
        for route in routes:
            inner = getattr(route, "original_router", None)
            if inner is not None:
                yield from paths(inner.routes)
            else:
                yield getattr(route, "path", "")

    words = {path.split("/")[1] for path in paths(app.routes) if "/" in path}
    return (words - {"{app}"}) | _KEPT | _KEPT_MORE


@router.delete(
    "/{name}",
    summary="Stop forwarding to an app",
    **described(shapes.AppGone, errors=(404, 409)),
)
async def delete_app(name: str, who: Admin) -> Response:
    await who.manager.gateway.apps.delete(name)
    who.note("app.delete", name)
    return answer(shapes.AppGone("the app is gone", name))


@router.post(
    "/{name}/routes",
    summary="Give a path of an app a timeout of its own",
    **described(
        AppInfo,
        body=shapes.RouteIn,
        errors=(404, 422),
        example={"path": "/train", "timeout": 600},
    ),
)
async def add_route(name: str, request: Request, who: Admin) -> Response:
    said = await read(request, shapes.RouteIn)
    row = await who.manager.gateway.apps.set_timeout(name, said.path, said.timeout)
    who.note("app.route", name, path=said.path, timeout=said.timeout)
    return answer(_shown(who.manager, row))


@router.delete(
    "/{name}/routes",
    summary="Let a path of an app have the app's own timeout again",
    **described(AppInfo, errors=(404, 422)),
)
async def delete_route(name: str, path: str, who: Admin) -> Response:
    row = await who.manager.gateway.apps.drop_timeout(name, path)
    who.note("app.unroute", name, path=path)
    return answer(_shown(who.manager, row))
