"""A small MCP client for the manager: lists its tools and calls them.

It shows the connection's own key. For whole agents, point any MCP client at
`/mcp-server/mcp` instead.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, Self

import msgspec

from corral.client.client import Client
from corral.client.http.endpoint import Flow, Request
from corral.client.http.errors import decode
from corral.errors import BadRequest, CorralError

PATH = "/mcp-server/mcp"
VERSION = "2025-11-25"
_WAIT_S = 60.0


class Tool(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}
    annotations: dict[str, Any] = {}


class ToolResult(msgspec.Struct, frozen=True, rename="camel"):
    """What a tool answered; `structured_content` is the call's own JSON."""

    content: list[dict[str, Any]]
    structured_content: dict[str, Any] | None = None
    is_error: bool = False


class _Tools(msgspec.Struct):
    tools: list[Tool]


class _RpcError(msgspec.Struct):
    code: int
    message: str


class _RpcAnswer(msgspec.Struct):
    result: dict[str, Any] | None = None
    error: _RpcError | None = None


class McpClient:
    """`async with connection.mcp_client as mcp: await mcp.call_tool("status")`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> Self:
        hello = {
            "protocolVersion": VERSION,
            "capabilities": {},
            "clientInfo": {"name": "corral", "version": "1"},
        }
        await self._ask("initialize", hello)
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Nothing to leave behind: the server keeps no session."""

    async def list_tools(self) -> list[Tool]:
        """The tools this connection's key may use."""
        told = await self._ask("tools/list", {})
        return msgspec.convert(told, _Tools).tools

    async def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None
    ) -> ToolResult:
        """Call a tool; what it refuses is a result with `is_error`.

        Raises:
            BadRequest: there is no such tool.
        """
        params = {"name": name, "arguments": arguments or {}}
        told = await self._ask("tools/call", params)
        return msgspec.convert(told, ToolResult)

    async def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        flow = _flow(next(self._numbers), method, params)
        return await asyncio.to_thread(self._client.drive, flow)


def pass_on(message: bytes) -> Flow[bytes]:
    """What the server answers to a message; nothing where no answer is due."""
    response = yield Request("POST", PATH, body=message, wait_s=_WAIT_S)
    return response.body


def _flow(number: int, method: str, params: dict[str, Any]) -> Flow[dict[str, Any]]:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    try:
        body = msgspec.json.encode(message)
    except (TypeError, ValueError) as error:
        raise CorralError(f"{method}: JSON has no form for this: {error}") from error
    response = yield Request("POST", PATH, body=body, wait_s=_WAIT_S)
    told = decode(response, _RpcAnswer)
    if told.error is not None:
        raise BadRequest(told.error.message, rpc_code=told.error.code)
    return told.result or {}
