"""/engine: bytes both ways between a node and Redis, for as long as both are there.

What Redis itself has a say in is in tests/security/test_redis.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from corral.engine.address import RedisAddress
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
        while (data := await reader.read(65536)) and data != command(b"leave"):
            writer.write(data.upper())
            await writer.drain()
        writer.close()
        self.ended.set()


def command(*words: bytes) -> bytes:
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n%b" % (len(words), b"".join(parts))


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
        for word in (
            command(b"ping\r\n"),
            command(b"set", b"", bytes(range(256))),
            command(b"x" * 200_000) * 2,
        ):
            tunnel.say(word[:7])
            tunnel.say(word[7:])
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
        tunnel.say(command(b"leave"))
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


@pytest.mark.parametrize(
    "said",
    [
        b"ping\r\n",
        command(b"RESET"),
        command(b"ping") + command(b"auth", b"default", b"guess"),
        command(b"hello", b"3", b"auth", b"node-of-another", b"guess"),
    ],
)
async def test_what_must_not_be_said_ends_the_tunnel_and_says_why(
    world: World, key: str, said: bytes
) -> None:
    async with shouting(world) as server:
        tunnel = Socket(world, key)
        await tunnel.hear()
        tunnel.say(said)
        while (word := await tunnel.hear())["type"] == "websocket.send":
            assert word["bytes"] == command(b"ping").upper()
        assert (word["type"], word["code"]) == ("websocket.close", 4403)
        assert word["reason"]
        await tunnel.task
        await server.ended.wait()


async def test_a_revoked_key_ends_the_tunnel_and_the_user(world: World) -> None:
    node = await world.node()
    async with shouting(world) as server:
        tunnel = Socket(world, node.caller.headers["Authorization"])
        await tunnel.hear()
        await world.manager.access.keys.revoke_node(node.id)
        assert (await tunnel.hear())["type"] == "websocket.close"
        await tunnel.task
        await server.ended.wait()
    world.engine.is_down = True
    await world.manager.nodes.engine.step()
    world.engine.is_down = False
    await world.manager.nodes.engine.step()
    await world.manager.nodes.engine.step()
    assert world.engine.revoked == [node.id]
