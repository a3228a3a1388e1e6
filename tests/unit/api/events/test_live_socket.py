"""Events over real sockets: those who read too slowly go, and nobody waits for them."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import uvicorn
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from corral.core.insight.event import Event
from corral.manager.events.listener import LiveConfig
from tests.unit.api.world import CONFIG, World, quiet, running

TEXT = "x" * 200_000
MOST = 400


class Place(str):
    """Host and port, and the server there."""

    def __new__(cls, text: str, server: uvicorn.Server) -> Place:
        made = super().__new__(cls, text)
        made.server = server
        return made

    server: uvicorn.Server


def connections(place: Place) -> set[object]:
    return set(place.server.server_state.connections)


@asynccontextmanager
async def served(world: World) -> AsyncIterator[Place]:
    """The application behind the server that users have."""
    config = uvicorn.Config(
        world.app, lifespan="off", log_config=None, ws_per_message_deflate=False
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = listener.getsockname()
    await server.startup([listener])
    try:
        yield Place(f"{host}:{port}", server)
    finally:
        world.manager.release()
        await server.shutdown([listener])


def opened(world: World, place: str, max_queue: int = 16) -> connect:
    url = f"ws://{place}/ws?type=large"
    headers = dict(world.read.headers)
    return connect(url, additional_headers=headers, proxy=None, max_queue=max_queue)


async def hear(client: ClientConnection) -> str:
    text = await asyncio.wait_for(client.recv(), 60)
    return str(json.loads(text)["event"])


async def hear_all(client: ClientConnection) -> tuple[int, ConnectionClosed]:
    """How much one is still told, and its end."""
    heard = 0
    while True:
        try:
            assert await hear(client) == "large"
        except ConnectionClosed as end:
            return heard, end
        heard += 1


async def tell_until_one_is_left(world: World, quick: ClientConnection) -> int:
    """Tell more than a connection holds, as quickly as one reads; how often."""
    broadcast = world.manager.events.broadcast
    for count in range(1, MOST):
        await world.manager.ctx.record([Event("large", TEXT)])
        broadcast.flush()
        assert await hear(quick) == "large"
        if len(broadcast.listeners) == 1:
            return count
        await quiet(10)
    raise AssertionError("the one who does not read is still there")


async def test_one_who_reads_too_slowly_is_told_so_and_others_lose_nothing() -> None:
    live = LiveConfig(backlog_bytes=500_000, patience_s=0.0, farewell_s=60.0)
    async with (
        running(replace(CONFIG, live=live)) as world,
        served(world) as place,
        opened(world, place) as quick,
        opened(world, place, max_queue=1) as slow,
    ):
        assert [await hear(quick), await hear(slow)] == ["hello", "hello"]
        told = await tell_until_one_is_left(world, quick)
        heard, end = await hear_all(slow)
        assert 0 < heard < told
        assert end.rcvd is not None
        assert end.rcvd.code == 1013
        assert "too slow" in end.rcvd.reason


async def test_one_who_reads_nothing_at_all_is_cut_off() -> None:
    live = LiveConfig(backlog_bytes=500_000, patience_s=0.0, farewell_s=0.05)
    async with (
        running(replace(CONFIG, live=live)) as world,
        served(world) as place,
        opened(world, place) as quick,
        opened(world, place, max_queue=1) as dead,
    ):
        assert [await hear(quick), await hear(dead)] == ["hello", "hello"]
        await tell_until_one_is_left(world, quick)
        async with asyncio.timeout(60):
            while len(connections(place)) > 1:
                await quiet(1)
        _, end = await hear_all(dead)
        assert end.rcvd is None, "there was no way to say goodbye"


async def test_a_stream_that_is_not_read_ends_without_holding_anybody_up() -> None:
    live = LiveConfig(backlog_bytes=500_000, patience_s=0.0, farewell_s=0.05)
    async with (
        running(replace(CONFIG, live=live)) as world,
        served(world) as place,
        opened(world, place) as quick,
    ):
        host, _, port = place.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        auth = world.read.headers["Authorization"]
        writer.write(
            f"GET /events/stream HTTP/1.1\r\nHost: {place}\r\n"
            f"Authorization: {auth}\r\n\r\n".encode()
        )
        assert b"200 OK" in await reader.readuntil(b"\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        assert await hear(quick) == "hello"
        await tell_until_one_is_left(world, quick)
        writer.close()


async def test_a_refusal_has_the_shape_of_all_errors_and_is_none_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as world, served(world) as place:
        with pytest.raises(InvalidStatus) as refused:
            async with connect(f"ws://{place}/ws", proxy=None):
                pass
        answer = refused.value.response
        assert answer.status_code == 401
        assert answer.body is not None
        assert json.loads(answer.body)["error"]["code"] == "unauthenticated"
    assert not [r for r in caplog.records if r.levelname == "ERROR"]
