"""`corral mcp`: tools for agents that start their servers themselves, over stdio.

Passes messages on and no more: what tools there are, and what they may do, is the
manager's business.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, BinaryIO

import msgspec
import typer

from corral.cli.options.connect import connect
from corral.errors import CorralError

if TYPE_CHECKING:
    from corral.client import Client

_CALLS = 16
"""Some wait for the end of a task; others must not wait for those."""
_NO_JSON, _FAILED = -32700, -32603


class _Asked(msgspec.Struct):
    """A message without an id is a notification: nobody waits for an answer."""

    id: int | str | None = None


class _RpcFault(msgspec.Struct):
    code: int
    message: str


class _Refusal(msgspec.Struct, tag_field="jsonrpc", tag="2.0"):
    id: int | str | None
    error: _RpcFault


def mcp(ctx: typer.Context) -> None:
    """Serve the cluster's tools to an agent (Model Context Protocol, over stdio).

    Enter it in the agent's settings as the command of a server; docs/mcp.md has how.
    """
    if sys.stdin.isatty():
        said = "waiting for JSON-RPC messages: an agent should start this (docs/mcp.md)"
        typer.echo(said, err=True)
    with connect(ctx) as client, ThreadPoolExecutor(_CALLS) as calls:
        bridge = Bridge(client, sys.stdout.buffer)
        for line in sys.stdin.buffer:
            if line.strip():
                calls.submit(bridge.answer, line)


class Bridge:
    """Gives each message to the manager and writes what it answers, one a line."""

    def __init__(self, client: Client, out: BinaryIO) -> None:
        self._client = client
        self._out = out
        self._lock = threading.Lock()

    def answer(self, line: bytes) -> None:
        # Late: the command's help needs no HTTP.
        from corral.client.mcp import pass_on

        try:
            asked = msgspec.json.decode(line, type=_Asked)
        except msgspec.MsgspecError as error:
            self._write(_refusal(None, _NO_JSON, str(error)))
            return
        try:
            self._write(self._client.drive(pass_on(line)))
        except CorralError as error:
            if asked.id is not None:
                self._write(_refusal(asked.id, _FAILED, error.message))

    def _write(self, answer: bytes) -> None:
        # An agent that has gone away needs no answer.
        with self._lock, contextlib.suppress(BrokenPipeError):
            if answer:
                self._out.write(answer + b"\n")
                self._out.flush()


def _refusal(asked: int | str | None, code: int, message: str) -> bytes:
    return msgspec.json.encode(_Refusal(asked, _RpcFault(code, message)))
