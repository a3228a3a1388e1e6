"""/apps, and every request under an app's name, carried to it and back.

An app can never stand before a route: names that one begins with are refused.
Callers' credentials do not travel, and an app's answer cannot act in our name.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

import httpx
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from starlette.datastructures import URLPath
from starlette.responses import StreamingResponse
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import Receive, Scope, Send

from corral.api.deps import Caller, answer, caller, read
from corral.api.describe import described
from corral.api.edge import SAFE
from corral.api.errors import problem
from corral.api.gateway import shapes
from corral.core.access import key
from corral.core.tasks.app import App
from corral.core.tasks.job_type import check_name
from corral.errors import BadRequest, InvalidField
from corral.manager.app import Manager

log = logging.getLogger(__name__)
router = APIRouter(prefix="/apps", tags=["gateway"])
Reader = Annotated[Caller, Depends(caller(key.Scope.READ))]
Admin = Annotated[Caller, Depends(caller(key.Scope.ADMIN))]
_submitter = caller(key.Scope.SUBMIT)

# Names that are, or will be, ours although no route begins with them.
_KEPT = frozenset({"api", "docs", "favicon.ico", "login", "metrics", "static", "ui"})
_KEPT_MORE = frozenset({"robots.txt", "v1", "ws"})
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_NOT_SENT = frozenset({b"authorization", b"cookie", b"expect", b"host"})
_EDGE = frozenset(name for name, _ in SAFE) - {b"content-security-policy"}
_NOT_RETURNED = _EDGE | {b"set-cookie", b"x-request-id"}
# A page of an app shows, but is nobody here: it has no part in our origin.
_SANDBOX = (b"content-security-policy", b"sandbox allow-scripts allow-forms")
_LOOKED_AT_ONLY = frozenset({"GET", "HEAD", "OPTIONS"})


@router.get("", summary="Apps of the gateway", **described(shapes.AppListOut))
async def apps(who: Reader) -> Response:
    rows = who.manager.gateway.apps.all()
    return answer(shapes.AppListOut([_shown(who.manager, a) for a in rows]))


def _shown(manager: Manager, app: App) -> shapes.AppOut:
    types = manager.gateway.apps.types_of(app)
    routes = [shapes.RouteOut(*row) for row in sorted(app.timeouts.items())]
    return shapes.AppOut(
        app.name, app.url, app.timeout_s, app.concurrency, types, app.created_at, routes
    )


@router.post(
    "",
    summary="Forward what comes under a name to an HTTP service",
    **described(
        shapes.AppOut,
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
    if name in _taken(request.app):
        raise InvalidField(f"'{name}' is the name of a route of ours", field="name")
    row = await who.manager.gateway.apps.register(
        name, said.url, said.timeout, said.concurrency
    )
    who.note("app.save", name, url=said.url)
    return row


def _taken(app: FastAPI) -> set[str]:
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
        shapes.AppOut,
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
    **described(shapes.AppOut, errors=(404, 422)),
)
async def delete_route(name: str, path: str, who: Admin) -> Response:
    row = await who.manager.gateway.apps.drop_timeout(name, path)
    who.note("app.unroute", name, path=path)
    return answer(_shown(who.manager, row))


class AppRoute(BaseRoute):
    """Matches what stands under an app's name.

    It is asked before the other routes, which are many to ask in vain, and gives way
    to them wherever one begins with the same word.
    """

    path = "/{app}/{path}"

    def __init__(self) -> None:
        self._taken: tuple[int, set[str]] = (0, set())

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Full when there is such an app; `corral_app` says which, and the rest."""
        if scope["type"] != "http":
            return Match.NONE, {}
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        word, slash, rest = raw.removeprefix(b"/").partition(b"/")
        name = word.decode("ascii", "replace")
        app = scope["app"].state.manager.gateway.apps.find(name)
        if app is None or name in self._routes(scope["app"]):
            return Match.NONE, {}
        return Match.FULL, {"corral_app": (app, slash + rest), "route": self}

    def _routes(self, app: FastAPI) -> set[str]:
        count = len(app.routes)
        if self._taken[0] != count:
            self._taken = (count, _taken(app))
        return self._taken[1]

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request, and pass the answer back."""
        request = Request(scope, receive)
        response = await _relay(request, *scope["corral_app"])
        await response(scope, receive, send)

    def url_path_for(self, name: str, /, **path_params: Any) -> URLPath:
        raise NoMatchFound(name, path_params)


def install(app: FastAPI) -> None:
    """Let apps answer what no route does."""
    app.router.routes.insert(0, AppRoute())


async def _relay(request: Request, app: App, path: bytes) -> Response:
    who = await _submitter(request)
    if request.method not in _LOOKED_AT_ONLY:
        who.note("app.forward", app.name, method=request.method)
    try:
        upstream = await who.manager.gateway.requests.send(
            app,
            request.method,
            _checked(path) + _query(request),
            _sent(request),
            _body(request),
        )
    except httpx.InvalidURL as e:
        raise BadRequest(f"the path cannot be forwarded: {e}") from None
    except httpx.TimeoutException:
        limit_s = app.timeout_for(path.decode())
        text = f"app '{app.name}' did not answer within {limit_s:g} s"
        return problem(request, 504, "gateway_timeout", text, {"app": app.name})
    except httpx.HTTPError as e:
        text = f"app '{app.name}' cannot be reached: {e or type(e).__name__}"
        return problem(request, 502, "bad_gateway", text, {"app": app.name})
    except InvalidField as e:
        return problem(request, 502, "bad_gateway", e.message, {"app": app.name})
    return _Relay(app.name, upstream)


def _checked(path: bytes) -> bytes:
    """No step out of the app's own URL, in whatever spelling."""
    steps = unquote_to_bytes(path).replace(b"\\", b"/").split(b"/")
    if b".." in steps or not path.isascii():
        raise BadRequest("the path cannot be forwarded: it has '..' or is not ASCII")
    return path


def _query(request: Request) -> bytes:
    text: bytes = request.scope["query_string"]
    if not text.isascii():
        raise BadRequest("the query cannot be forwarded: it is not ASCII")
    return b"?" + text if text else b""


def _sent(request: Request) -> list[tuple[bytes, bytes]]:
    kept = _end_to_end(request.scope["headers"], _NOT_SENT | {b"x-request-id"})
    request_id = request.scope.get("corral_request_id", "")
    return [*kept, (b"x-request-id", request_id.encode())]


def _body(request: Request) -> AsyncIterator[bytes] | None:
    has_body = {"content-length", "transfer-encoding"} & set(request.headers)
    return request.stream() if has_body else None


def _end_to_end(
    headers: Iterable[tuple[bytes, bytes]], but: frozenset[bytes]
) -> list[tuple[bytes, bytes]]:
    """Headers without those that are for one connection, named there or known."""
    pairs = [(name.lower(), value) for name, value in headers]
    named = {
        word.strip().lower()
        for name, value in pairs
        if name == b"connection"
        for word in value.split(b",")
    }
    return [(n, v) for n, v in pairs if n not in _HOP_BY_HOP | named | but]


class _Relay(StreamingResponse):
    """An app's answer, passed on as it comes; closed whatever happens."""

    def __init__(self, name: str, upstream: httpx.Response) -> None:
        super().__init__(upstream.aiter_raw(), upstream.status_code)
        kept = _end_to_end(upstream.headers.raw, _NOT_RETURNED)
        self.raw_headers = [*kept, _SANDBOX]
        self._name = name
        self._upstream = upstream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except httpx.HTTPError as e:
            # Too late for another status: the caller sees the answer break off.
            log.warning("app '%s' broke off: %s", self._name, e or type(e).__name__)
        finally:
            await self._upstream.aclose()
