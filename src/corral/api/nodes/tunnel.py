"""/engine: carries a node's Redis traffic, so that it needs only this address.

The connection is logged in as the node before its first byte comes, and stays so.
"""

from __future__ import annotations

import asyncio
import contextlib

from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect

from corral.api.caller import bearer, note_denial
from corral.core.access.key import Key, Scope
from corral.errors import AuthError, EngineUnavailable
from corral.manager.app import Manager
from corral.manager.nodes.engine_access import NodeTunnel

router = APIRouter()
_WHERE = "WS /engine"
_DENIED = 4401
_FORBIDDEN = 4403
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
        note_denial(manager, key, _WHERE, e, ip)
        await socket.close(_DENIED)
        return
    try:
        link = await manager.nodes.engine.open(key)
    except EngineUnavailable:
        await socket.close(_NO_ENGINE)
        return
    except AuthError as e:
        note_denial(manager, key, _WHERE, e, ip)
        # Opened for a moment: only so can its agent be told why.
        await socket.accept()
        await _close(socket, _FORBIDDEN, e.message)
        return
    try:
        with manager.nodes.engine.held(key, link):
            await socket.accept()
            await _carry(socket, link)
    except AuthError as e:
        note_denial(manager, key, _WHERE, e, ip)
        await _close(socket, _FORBIDDEN, e.message)
    else:
        await _close(socket)


async def _carry(socket: WebSocket, link: NodeTunnel) -> None:
    """Bytes both ways until either side ends; neither is trusted to end nicely.

    Raises:
        Forbidden: the node said what it must not say.
    """
    up = asyncio.create_task(_up(socket, link))
    down = asyncio.create_task(_down(socket, link))
    try:
        await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in (up, down):
            way.cancel()
        ends = await asyncio.gather(up, down, return_exceptions=True)
    for end in ends:
        if isinstance(end, AuthError):
            raise end


async def _up(socket: WebSocket, link: NodeTunnel) -> None:
    while True:
        await link.write(await socket.receive_bytes())


async def _down(socket: WebSocket, link: NodeTunnel) -> None:
    while data := await link.read():
        await socket.send_bytes(data)


async def _close(socket: WebSocket, code: int = 1000, reason: str = "") -> None:
    # The protocol has room for 123 bytes.
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):
        await socket.close(code, reason[:120])
