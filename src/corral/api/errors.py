"""Exception to HTTP status: the one table, and the one error shape."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from corral import errors
from corral.api.edge import SAFE
from corral.api.model import Problem, ProblemOut
from corral.api.openai_error import is_openai, openai_problem
from corral.manager.clock import Clock

log = logging.getLogger(__name__)

# First match wins, so the narrow classes stand before their bases.
STATUS: tuple[tuple[type[errors.CorralError], int], ...] = (
    (errors.InvalidJson, 400),
    (errors.TooLarge, 413),
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


def status_of(error: errors.CorralError) -> int:
    return next(status for kind, status in STATUS if isinstance(error, kind))


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
