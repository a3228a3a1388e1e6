"""/engine: bytes both ways between a node and Redis, for as long as both are there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from corral.engine.dispatch import RedisAddress
from tests.unit.api.world import World


class Socket:
    """The node's end of a WebSocket to the application, without a network."""

    def __init__(self, world: World, key: str) -> None:
        scope = {
            "type": "websocket",
            "path": "/engine",
            "raw_path": b"/engine",
            "query_string": b"",
            "headers": [(b"authorization", key.encode())],
            "client": ("127.0.0.1", 1),
            "server": ("corral", 80),
            "subprotocols": [],
            "scheme": "ws",
        }
        self._up: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._down: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._up.put_nowait({"type": "websocket.connect"})
        self.task = asyncio.create_task(self._run(world, scope))

    async def _run(self, world: World, scope: dict[str, Any]) -> None:
        async def send(message: Any) -> None:
            self._down.put_nowait(message)

        await world.app(scope, self._up.get, send)

    def say(self, data: bytes) -> None:
        self._up.put_nowait({"type": "websocket.receive", "bytes": data})

    def hang_up(self) -> None:
        self._up.put_nowait({"type": "websocket.disconnect", "code": 1006})

    async def hear(self) -> dict[str, Any]:
        async with asyncio.timeout(60):
            return await self._down.get()


class Server:
    """Shouts back what it is told, until told to leave."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while (data := await reader.read(65536)) and data != b"leave":
            writer.write(data.upper())
            await writer.drain()
        writer.close()
        self.ended.set()


@asynccontextmanager
async def shouting(world: World) -> AsyncIterator[Server]:
    server = Server()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    world.engine.address = RedisAddress("127.0.0.1", port, None, 0, None, None, False)
    async with listener:
        yield server


@pytest.fixture
async def key(world: World) -> str:
    return (await world.node()).caller.headers["Authorization"]


async def test_bytes_travel_both_ways_unchanged(world: World, key: str) -> None:
    async with shouting(world):
        tunnel = Socket(world, key)
        assert (await tunnel.hear())["type"] == "websocket.accept"
        for word in (b"ping\r\n", bytes(range(256)), b"x" * 200_000):
            tunnel.say(word)
            heard = b""
            while len(heard) < len(word):
                heard += (await tunnel.hear())["bytes"]
            assert heard == word.upper()
        tunnel.hang_up()
        await tunnel.task


async def test_a_node_that_goes_away_ends_the_connection_to_redis(
    world: World, key: str
) -> None:
    async with shouting(world) as server:
        tunnel = Socket(world, key)
        await tunnel.hear()
        tunnel.hang_up()
        async with asyncio.timeout(60):
            await tunnel.task
            await server.ended.wait()


async def test_a_redis_that_goes_away_ends_the_tunnel(world: World, key: str) -> None:
    async with shouting(world):
        tunnel = Socket(world, key)
        await tunnel.hear()
        tunnel.say(b"leave")
        assert (await tunnel.hear())["type"] == "websocket.close"
        await tunnel.task


async def test_text_in_the_tunnel_ends_it(world: World, key: str) -> None:
    async with shouting(world):
        tunnel = Socket(world, key)
        await tunnel.hear()
        tunnel._up.put_nowait({"type": "websocket.receive", "text": "hello"})
        assert (await tunnel.hear())["type"] == "websocket.close"
        await tunnel.task


async def test_a_redis_that_is_away_is_told_as_try_again_later(
    world: World, key: str
) -> None:
    word = await Socket(world, key).hear()
    assert (word["type"], word["code"]) == ("websocket.close", 1013)
