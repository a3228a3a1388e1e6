"""Every request under the name of an app, carried to it and back.

An app can never stand before a route. Callers' credentials do not travel, and an
app's answer cannot act in our name.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from typing import Any
from urllib.parse import unquote_to_bytes

import httpx
from fastapi import FastAPI, Request, Response
from starlette.datastructures import URLPath
from starlette.responses import StreamingResponse
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import Receive, Scope, Send

from corral.api.caller import caller
from corral.api.errors import problem
from corral.api.gateway.routes import taken_names
from corral.api.middleware import SAFE
from corral.core.access import key
from corral.core.tasks.app import App
from corral.errors import BadRequest, InvalidField
from corral.wire.job_api import CALL_PASS

log = logging.getLogger(__name__)
_submitter = caller(key.Scope.SUBMIT)
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
_NOT_SENT = frozenset(
    {b"authorization", b"cookie", b"expect", b"host", CALL_PASS.encode()}
)
_EDGE = frozenset(name for name, _ in SAFE) - {b"content-security-policy"}
_NOT_RETURNED = _EDGE | {b"set-cookie", b"x-request-id"}
# A page of an app shows, but is nobody here: it has no part in our origin.
_SANDBOX = (b"content-security-policy", b"sandbox allow-scripts allow-forms")
_LOOKED_AT_ONLY = frozenset({"GET", "HEAD", "OPTIONS"})


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
            self._taken = (count, taken_names(app))
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
