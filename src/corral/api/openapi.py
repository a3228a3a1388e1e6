"""OpenAPI from the structs themselves: request, answer, examples, every error code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from corral.api.errors import FaultOut, ProblemOut, fault
from corral.wire.value import PlainValue

_REF = "#/components/schemas/{name}"
# What an answer of each status means, and the codes that stand in it.
_WORDS = {
    400: ("The body is not valid JSON, or cannot be used", "invalid_json, bad_request"),
    401: ("No key, or one that is not known, expired or revoked", "unauthenticated"),
    403: ("The key's scope does not allow this", "forbidden"),
    404: (
        "There is no such thing",
        "task_not_found, worker_not_found, node_not_found, not_found",
    ),
    409: ("Its state does not allow this", "conflict, illegal_transition"),
    413: ("The body is too large", "too_large"),
    422: (
        "A field is wrong; details.field names it",
        "invalid_field, unknown_task_type",
    ),
    429: ("Too many requests; see Retry-After", "rate_limited"),
    500: ("A mistake of ours; the log has it under the request id", "internal_error"),
    503: (
        "The database or Redis does not answer; see Retry-After",
        "store_unavailable, engine_unavailable, not_leader",
    ),
}
_ALWAYS = (401, 403, 429, 500, 503)
_WITH_BODY = (400, 413, 422)
_structs: dict[str, type] = {"ProblemOut": ProblemOut}


def _ref(kind: type) -> dict[str, Any]:
    if kind is dict:
        return {"type": "object"}
    _structs[kind.__name__] = kind
    return {"$ref": _REF.format(name=kind.__name__)}


def described(
    answer: type,
    *,
    or_else: type | None = None,
    body: type | None = None,
    status: int = 200,
    errors: tuple[int, ...] = (),
    example: Any = None,
    is_open: bool = False,
    is_openai: bool = False,
) -> dict[str, Any]:
    """Keyword arguments for a route decorator; `is_openai` for the errors of /v1."""
    schema = _ref(answer)
    if or_else is not None:
        schema = {"anyOf": [schema, _ref(or_else)]}
    responses: dict[str, Any] = {str(status): _said("Done", schema)}
    usual = (500,) if is_open else _ALWAYS
    for code in sorted({*usual, *(_WITH_BODY if body else ()), *errors}):
        responses[str(code)] = _fault(code) if is_openai else _problem(code)
    if is_openai:
        responses.pop("422", None)
    extra: dict[str, Any] = {"responses": responses}
    if is_open:
        extra["security"] = []
    if body is not None:
        sent = {"schema": _ref(body), "example": example}
        content = {"application/json": sent}
        extra["requestBody"] = {"required": True, "content": content}
    return {"openapi_extra": extra, "status_code": status, "response_model": None}


def _said(words: str, schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    content = {"application/json": {"schema": schema, **more}}
    return {"description": words, "content": content}


def _problem(status: int) -> dict[str, Any]:
    words, codes = _WORDS[status]
    example = {
        "error": {
            "code": codes.partition(",")[0],
            "message": words,
            "details": {"field": "priority"} if status == 422 else {},
            "request_id": "5f0c9f3b2e1d4c7a8b6d",
            "timestamp": "2026-01-01T00:00:00Z",
        }
    }
    return _said(f"{words}. Codes: {codes}", _ref(ProblemOut), example=example)


def _fault(status: int) -> dict[str, Any]:
    words, codes = _WORDS[status]
    told = fault(status, codes.partition(",")[0], words)
    return _said(words, _ref(FaultOut), example=msgspec.to_builtins(told))


def install(app: FastAPI) -> None:
    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _build(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _build(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
    )
    _, components = msgspec.json.schema_components(
        list(_structs.values()), ref_template=_REF, schema_hook=_any
    )
    parts = document.setdefault("components", {})
    # FastAPI's own shape of a validation error: none of our answers has it.
    schemas = {
        name: schema
        for name, schema in parts.get("schemas", {}).items()
        if name not in ("HTTPValidationError", "ValidationError")
    }
    for kind in _answers(PlainValue):
        if kind.__name__ in components:
            _say_all_is_sent(components[kind.__name__])
    parts["schemas"] = schemas | components
    parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"key": []}]
    for path in document["paths"].values():
        for operation in path.values():
            _drop_foreign(operation)
    return document


def _answers(base: type[PlainValue]) -> Iterator[type[PlainValue]]:
    """Every shape of an answer that is sent whole; requests refuse what they miss."""
    for kind in base.__subclasses__():
        config = getattr(kind, "__struct_config__", None)
        if not config or not (config.omit_defaults or config.forbid_unknown_fields):
            yield kind
        yield from _answers(kind)


def _say_all_is_sent(schema: dict[str, Any]) -> None:
    """Defaults of an answer are for readers: it has every field."""
    if fields := schema["properties"]:
        schema["required"] = list(fields)
    for field in fields.values():
        field.pop("default", None)
        if field.pop("nullable", True) is False:
            (sent,) = (one for one in field.pop("anyOf") if one != {"type": "null"})
            field |= sent


def _drop_foreign(operation: dict[str, Any]) -> None:
    """FastAPI adds a 422 of its own shape where a route has parameters."""
    content = operation["responses"].get("422", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    if str(schema.get("$ref", "")).endswith("HTTPValidationError"):
        del operation["responses"]["422"]


def _any(kind: type) -> dict[str, Any]:
    if kind is msgspec.Raw:
        return {"description": "any JSON value"}
    raise NotImplementedError(kind)
