"""/engine: carries a node's Redis traffic, so that it needs only this address."""

from __future__ import annotations

import asyncio
import contextlib

from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect

from corral.api.caller import bearer, note_denial
from corral.core.access.key import Key, Scope
from corral.errors import AuthError
from corral.manager.app import Manager

router = APIRouter()
CHUNK = 64 * 1024
_DENIED = 4401
_NO_ENGINE = 1013


@router.websocket("/engine")
async def tunnel(socket: WebSocket) -> None:
    manager: Manager = socket.app.state.manager
    ip = socket.client.host if socket.client else ""
    key: Key | None = None
    try:
        text = bearer(socket.headers.get("authorization"))
        key = manager.access.keys.authenticate(text, ip)
        manager.access.keys.require(key, Scope.NODE)
    except AuthError as e:
        note_denial(manager, key, "WS /engine", e, ip)
        await socket.close(_DENIED)
        return
    try:
        reader, writer = await manager.nodes.join.open_engine()
    except OSError:
        await socket.close(_NO_ENGINE)
        return
    await socket.accept()
    await _carry(socket, reader, writer)


async def _carry(
    socket: WebSocket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Bytes both ways until either side ends; neither is trusted to end nicely."""
    ways = [
        asyncio.create_task(_up(socket, writer)),
        asyncio.create_task(_down(socket, reader)),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        writer.close()
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await socket.close()


async def _up(socket: WebSocket, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(await socket.receive_bytes())
        await writer.drain()


async def _down(socket: WebSocket, reader: asyncio.StreamReader) -> None:
    while data := await reader.read(CHUNK):
        await socket.send_bytes(data)
