"""OpenAPI from the structs themselves: request, answer, examples, every error code."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from corral.api.model import ProblemOut

_REF = "#/components/schemas/{name}"
_WORDS = {
    400: "The body is not valid JSON, or the request cannot be used",
    401: "No key, or one that is not known, expired or revoked",
    403: "The key's scope does not allow this",
    404: "There is no such thing",
    409: "Its state does not allow this",
    413: "The body is too large",
    422: "A field is wrong; details.field names it",
    429: "Too many requests; see Retry-After",
    503: "The database or Redis does not answer; see Retry-After",
}
_structs: dict[str, type] = {"ProblemOut": ProblemOut}


def _ref(kind: type) -> dict[str, Any]:
    _structs[kind.__name__] = kind
    return {"$ref": _REF.format(name=kind.__name__)}


def described(
    answer: type,
    *,
    body: type | None = None,
    status: int = 200,
    errors: tuple[int, ...] = (),
    example: Any = None,
) -> dict[str, Any]:
    """Keyword arguments for a route decorator."""
    content: dict[str, Any] = {"schema": _ref(answer)}
    responses: dict[str, Any] = {
        str(status): {
            "description": "Done",
            "content": {"application/json": content},
        }
    }
    for code in sorted({401, 403, 429, 503, *errors}):
        responses[str(code)] = {
            "description": _WORDS[code],
            "content": {"application/json": {"schema": _ref(ProblemOut)}},
        }
    extra: dict[str, Any] = {"responses": responses}
    if body is not None:
        sent: dict[str, Any] = {"schema": _ref(body)}
        if example is not None:
            sent["example"] = example
        extra["requestBody"] = {
            "required": True,
            "content": {"application/json": sent},
        }
    return {"openapi_extra": extra, "status_code": status, "response_model": None}


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
    parts.setdefault("schemas", {}).update(components)
    parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"key": []}]
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None) if not _is_ours(operation) else None
    return document


def _is_ours(operation: dict[str, Any]) -> bool:
    content = operation["responses"].get("422", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    return str(schema.get("$ref", "")).endswith("ProblemOut")


def _any(kind: type) -> dict[str, Any]:
    if kind is msgspec.Raw:
        return {"description": "any JSON value"}
    raise NotImplementedError(kind)
