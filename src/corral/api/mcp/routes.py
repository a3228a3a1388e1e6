"""The Model Context Protocol: tools for agents, over JSON-RPC in plain POSTs.

Stateless: no sessions, no streams. A tool is carried out as the HTTP call it stands
for, with the caller's own key, so that it can do no more than that.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import httpx
import msgspec
from fastapi import APIRouter, Depends, Request, Response
from msgspec import UNSET, Raw, Struct, UnsetType

from corral import __version__
from corral.api.body import answer, decode
from corral.api.caller import Caller, caller
from corral.api.mcp.tools import TOOLS, McpTool
from corral.api.openapi import described
from corral.core.access.key import Scope
from corral.errors import BadRequest, Forbidden

router = APIRouter(tags=["mcp"])
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
VERSIONS = ("2025-11-25", "2025-06-18")
"""Revisions of the protocol, the newest first."""
NO_METHOD, BAD_PARAMS = -32601, -32602
_HOW = (
    "Corral runs work on many machines. Look at list_job_types, submit_job with a "
    "schema_name and a payload, then get_task with wait until it has ended."
)
_EXAMPLE = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


class RpcMessage(Struct):
    """A request, a notification (no id) or a response (no method)."""

    jsonrpc: Literal["2.0"]
    id: int | str | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET


class RpcFault(Struct):
    code: int
    message: str


class RpcAnswer(Struct, tag_field="jsonrpc", tag="2.0"):
    id: int | str
    result: dict[str, Any] | UnsetType = UNSET
    error: RpcFault | UnsetType = UNSET


class InitializeResult(Struct):
    protocolVersion: str  # noqa: N815 - as the protocol writes it


class ToolCall(Struct):
    name: str
    arguments: Raw = Raw(b"{}")


@router.post(
    "/mcp-server/mcp",
    summary="Model Context Protocol: the calls of this API as tools",
    **described(RpcAnswer, body=RpcMessage, example=_EXAMPLE),
)
async def mcp(request: Request, who: Reader) -> Response:
    _check_origin(request)
    _check_version(request)
    message = decode(await request.body(), RpcMessage)
    if message.id is UNSET or message.method is UNSET:
        return Response(status_code=202)
    told = await _carry_out(request, who, message)
    if isinstance(told, RpcFault):
        return answer(RpcAnswer(message.id, error=told))
    return answer(RpcAnswer(message.id, told))


def _check_origin(request: Request) -> None:
    """A page of another site, or one whose name was bent to us, asks for nothing."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise Forbidden("this origin may not speak MCP here", origin=origin[:200])


def _check_version(request: Request) -> None:
    version = request.headers.get("mcp-protocol-version", VERSIONS[0])
    if version not in VERSIONS:
        raise BadRequest(
            f"MCP {version[:40]} is not spoken here; initialize agrees on one of "
            f"{', '.join(VERSIONS)}",
            supported=list(VERSIONS),
        )


async def _carry_out(
    request: Request, who: Caller, message: RpcMessage
) -> dict[str, Any] | RpcFault:
    params = message.params if isinstance(message.params, Raw) else Raw(b"{}")
    try:
        if message.method == "initialize":
            return _greet(msgspec.json.decode(params, type=InitializeResult))
        if message.method == "ping":
            return {}
        if message.method == "tools/list":
            mine = [t for t in TOOLS.values() if who.key.allows(t.scope)]
            return {"tools": [tool.shown() for tool in mine]}
        if message.method == "tools/call":
            call = msgspec.json.decode(params, type=ToolCall)
            if call.name in TOOLS:
                return await _use(request, who, TOOLS[call.name], call.arguments)
            return RpcFault(BAD_PARAMS, f"no tool {call.name[:100]!r}")
    except msgspec.ValidationError as e:
        return RpcFault(BAD_PARAMS, str(e))
    return RpcFault(NO_METHOD, f"no method {str(message.method)[:100]!r}")


def _greet(asked: InitializeResult) -> dict[str, Any]:
    version = asked.protocolVersion
    return {
        "protocolVersion": version if version in VERSIONS else VERSIONS[0],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "corral", "title": "Corral", "version": __version__},
        "instructions": _HOW,
    }


async def _use(
    request: Request, who: Caller, tool: McpTool, arguments: Raw
) -> dict[str, Any]:
    try:
        is_left_out = bytes(arguments) == b"null"
        path, query, body = tool.request(Raw(b"{}") if is_left_out else arguments)
    except msgspec.ValidationError as e:
        # Not a fault of the protocol: the agent shall see it and mend its call.
        return _result(f"{tool.name}: {e}".encode(), is_error=True)
    said = await _call(request, who, tool.method, path, query, body)
    return _result(said.content, is_error=said.is_error)


async def _call(
    request: Request,
    who: Caller,
    method: str,
    path: str,
    query: dict[str, Any],
    body: bytes | None,
) -> httpx.Response:
    """Ask this very application, as the caller."""
    inside = httpx.ASGITransport(
        request.app, raise_app_exceptions=False, client=(who.ip, 0)
    )
    headers = {
        "x-request-id": who.request_id,
        "host": request.headers["host"],
        "content-type": "application/json",
    }
    for name in ("authorization", "traceparent"):
        if (given := request.headers.get(name)) is not None:
            headers[name] = given
    async with httpx.AsyncClient(
        transport=inside, base_url="http://corral", timeout=None
    ) as http:
        return await http.request(
            method, path, params=query or None, content=body, headers=headers
        )


def _result(body: bytes, *, is_error: bool) -> dict[str, Any]:
    text = {"type": "text", "text": body.decode("utf-8", "replace")}
    told: dict[str, Any] = {"content": [text], "isError": is_error}
    if body.startswith(b"{"):
        told["structuredContent"] = Raw(body)
    return told
