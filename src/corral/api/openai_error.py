"""Errors under /v1 in the shape that clients of that API know."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import Request, Response

PREFIX = "/v1/"
_CODES = {
    "unauthenticated": "invalid_api_key",
    "rate_limited": "rate_limit_exceeded",
    "unknown_task_type": "model_not_found",
}


class Fault(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str


class FaultOut(msgspec.Struct):
    error: Fault


def is_openai(request: Request) -> bool:
    return str(request.scope["path"]).startswith(PREFIX)


def fault(
    status: int, code: str, message: str, details: dict[str, Any] | None = None
) -> FaultOut:
    param = (details or {}).get("field")
    if code == "not_found" and param == "model":
        code = "model_not_found"
    told = None if param is None else str(param)
    return FaultOut(Fault(message, _type(status), told, _CODES.get(code, code)))


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


def _type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    if status == 403:
        return "permission_error"
    return "server_error" if status >= 500 else "invalid_request_error"
