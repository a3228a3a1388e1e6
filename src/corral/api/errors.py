"""Exception to HTTP status: the one table, and the one error shape.

Under /v1 errors have the shape that clients of that API know. What stands in an error
is for callers: nothing of a traceback leaves here, only the log has it.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from corral import errors
from corral.api.middleware import SAFE
from corral.manager.clock import Clock

log = logging.getLogger(__name__)
PREFIX = "/v1/"
_CODES = {
    "unauthenticated": "invalid_api_key",
    "rate_limited": "rate_limit_exceeded",
    "unknown_task_type": "model_not_found",
}
# First match wins, so the narrow classes stand before their bases.
STATUS: tuple[tuple[type[errors.CorralError], int], ...] = (
    (errors.InvalidJson, 400),
    (errors.TooLarge, 413),
    (errors.UnsupportedType, 415),
    (errors.InvalidField, 422),
    (errors.UnknownTaskType, 422),
    (errors.BadRequest, 400),
    (errors.Unauthenticated, 401),
    (errors.RateLimited, 429),
    (errors.Forbidden, 403),
    (errors.NotFound, 404),
    (errors.Conflict, 409),
    (errors.Unavailable, 503),
    (errors.TaskFailed, 502),
    (errors.CorralError, 500),
)
_HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}
_clock = Clock()


class Problem(Struct):
    """The one error shape, inside `error`."""

    code: str
    message: str
    details: dict[str, Any]
    request_id: str
    timestamp: datetime


class ProblemOut(Struct):
    error: Problem


class Fault(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str


class FaultOut(msgspec.Struct):
    error: Fault


def install(app: FastAPI) -> None:
    """Hang the handlers on `app`; nothing leaves it in another shape."""

    @app.exception_handler(errors.CorralError)
    async def on_ours(request: Request, error: errors.CorralError) -> Response:
        status = status_of(error)
        headers: dict[str, str] = {}
        if status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        if status in (429, 503):
            headers["Retry-After"] = str(error.details.get("retry_after_s", 1))
        if status == 429 and "limit" in error.details:
            headers["X-RateLimit-Limit"] = str(error.details["limit"])
            headers["X-RateLimit-Remaining"] = "0"
            headers["X-RateLimit-Reset"] = str(error.details["reset_s"])
        return problem(
            request, status, error.code, error.message, error.details, headers
        )

    @app.exception_handler(RequestValidationError)
    async def on_query(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        field = str(first["loc"][-1])
        message = f"{field}: {first['msg']}"
        return problem(request, 422, "invalid_field", message, {"field": field})

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        code = _HTTP_CODES.get(error.status_code, "bad_request")
        message = str(error.detail)
        if error.status_code == 404:
            message = "there is nothing under this address; see /openapi.json"
        headers = dict(error.headers or {})
        return problem(request, error.status_code, code, message, {}, headers)

    @app.exception_handler(ClientDisconnect)
    async def on_gone(request: Request, error: ClientDisconnect) -> Response:
        return problem(request, 400, "bad_request", "the caller went away")

    @app.exception_handler(Exception)
    async def on_bug(request: Request, error: Exception) -> Response:
        request_id = request.scope.get("corral_request_id", "")
        told = {"request_id": request_id}
        log.error("request %s failed", request_id, exc_info=error, extra=told)
        message = "Corral made a mistake; its log has the details under this request id"
        # This one answer is made outside the edge, which adds these to all others.
        headers = {name.decode(): value.decode() for name, value in SAFE}
        headers["x-request-id"] = request_id
        return problem(request, 500, "internal_error", message, headers=headers)


def problem(
    request: Request,
    status: int,
    code: str,
    message: str,
    details: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """An answer in the one error shape; under /v1 in the one that is usual there."""
    if is_openai(request):
        return openai_problem(status, code, message, details, headers)
    request_id = request.scope.get("corral_request_id", "")
    body = ProblemOut(Problem(code, message, details or {}, request_id, _clock.now()))
    return Response(
        msgspec.json.encode(body, enc_hook=str),
        status,
        headers=headers,
        media_type="application/json",
    )


async def refuse_revoked(scope: Scope, receive: Receive, send: Send) -> None:
    """The answer to a request that was broken off with its key."""
    message = "this key was revoked or is over"
    said = problem(Request(scope), 401, errors.Unauthenticated.code, message)
    await said(scope, receive, send)


def status_of(error: errors.CorralError) -> int:
    return next(status for kind, status in STATUS if isinstance(error, kind))


def openai_problem(
    status: int,
    code: str,
    message: str,
    details: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    if code == "unknown_task_type":
        status = 404
    return Response(
        msgspec.json.encode(fault(status, code, message, details)),
        # There, whatever is wrong with a request is a 400.
        400 if status == 422 else status,
        headers=headers,
        media_type="application/json",
    )


def fault(
    status: int, code: str, message: str, details: dict[str, Any] | None = None
) -> FaultOut:
    param = (details or {}).get("field")
    if code == "not_found" and param == "model":
        code = "model_not_found"
    told = None if param is None else str(param)
    return FaultOut(Fault(message, _type(status), told, _CODES.get(code, code)))


def is_openai(request: Request) -> bool:
    return str(request.scope["path"]).startswith(PREFIX)


def _type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    if status == 403:
        return "permission_error"
    return "server_error" if status >= 500 else "invalid_request_error"
