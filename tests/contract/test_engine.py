"""One suite for both engines: Celery's transport on a real Redis, and its twin."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest
import redis as redis_client
from msgspec import Raw
from redis.asyncio import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from corral.embedded.binaries import find_redis
from corral.engine.base import Engine
from corral.engine.celery_app import ORDER_TASK, make_app
from corral.engine.dispatch import Dispatcher
from corral.engine.envelope import queue_name, signed_order, verify
from corral.errors import EngineUnavailable
from corral.wire.orders import Item, Order
from tests.twins.engine import InlineDispatcher

SECRET = "ab" * 32
PASSWORD = "only-for-tests"
QUEUE = queue_name("n1", "w1")


def binary() -> str:
    found = find_redis()
    if found.program is None:
        pytest.skip("no Redis server here")
    return str(found.program)


class RedisServer:
    """A Redis of our own, on a socket in a folder of our own."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "redis.sock"
        self.url = f"redis+socket://:{PASSWORD}@{self.path}?virtual_host=0"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [binary(), "--port", "0", "--unixsocket", str(self.path)]
        options = ["--dir", str(self._folder), "--save", "", "--daemonize", "no"]
        self._process = subprocess.Popen(
            [*command, *options, "--requirepass", PASSWORD, "--loglevel", "notice"],
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if b"ready to accept connections" in line.lower():
                return
        raise AssertionError("redis-server did not start")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def client(self, **login: str) -> redis_client.Redis:
        login = login or {"password": PASSWORD}
        return redis_client.Redis(
            unix_socket_path=str(self.path),
            retry=Retry(NoBackoff(), 0),
            **login,  # type: ignore[arg-type]
        )


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    # A short path: sockets have little room for one.
    with tempfile.TemporaryDirectory(prefix="cr-") as folder:
        server = RedisServer(Path(folder))
        server.start()
        yield server
        server.stop()


class Side(Protocol):
    """An engine and the far end of its queues."""

    engine: Engine

    async def taken(self, queue: str) -> list[Mapping[str, Any]]: ...

    async def rung(self, act: Callable[[], Awaitable[None]]) -> list[str]: ...

    def go_down(self) -> None: ...


class InlineSide:
    def __init__(self) -> None:
        self.inline = InlineDispatcher()
        self.engine: Engine = self.inline

    async def taken(self, queue: str) -> list[Mapping[str, Any]]:
        return list(self.inline.sent.pop(queue, []))

    async def rung(self, act: Callable[[], Awaitable[None]]) -> list[str]:
        await act()
        return self.inline.rung

    def go_down(self) -> None:
        self.inline.is_down = True


class RedisSide:
    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.engine: Engine = Dispatcher(server.url, timeout_s=2.0)

    async def taken(self, queue: str) -> list[Mapping[str, Any]]:
        return await asyncio.to_thread(self._take, queue)

    def _take(self, queue: str) -> list[Mapping[str, Any]]:
        """As Celery's consumer reads them: through kombu."""
        app = make_app(self.server.url, node_id="n1")
        found = []
        with app.connection_for_read() as connection:
            channel = connection.default_channel
            while (message := channel.basic_get(queue, no_ack=True)) is not None:
                assert message.headers["task"] == ORDER_TASK
                args, kwargs, _ = message.decode()
                assert kwargs == {}
                found.append(args[0])
        app.close()
        return found

    async def rung(self, act: Callable[[], Awaitable[None]]) -> list[str]:
        client = Redis(unix_socket_path=str(self.server.path), password=PASSWORD)
        async with client, client.pubsub() as listener:
            await listener.subscribe("/0.celery.pidbox")
            await listener.get_message(timeout=30.0)
            await act()
            heard = await listener.get_message(timeout=30.0)
        assert heard is not None
        names = _destination(heard["data"])
        return [name.removesuffix("@corral") for name in names]

    def go_down(self) -> None:
        self.server.stop()


def _destination(data: bytes) -> list[str]:
    envelope = json.loads(data)
    body = json.loads(base64.b64decode(envelope["body"]))
    assert body["method"] == "corral_bell"
    return list(body["destination"])


@pytest.fixture(params=["inline", "redis"])
async def side(request: pytest.FixtureRequest) -> AsyncIterator[Side]:
    made: Side
    if request.param == "inline":
        made = InlineSide()
    else:
        made = RedisSide(request.getfixturevalue("redis_server"))
    yield made
    await made.engine.close()


def order(number: int, payload: str = '{"n": 1}') -> dict[str, str]:
    item = Item(f"t{number}", 1, Raw(payload.encode()), "echo")
    return signed_order(Order(f"o{number}", "w1", "i1", [item]), SECRET)


async def test_orders_arrive_whole_in_order_and_with_their_signature(
    side: Side,
) -> None:
    sent = [order(n) for n in range(5)]
    for number, signed in enumerate(sent):
        await side.engine.send(QUEUE, f"o{number}", signed)
    taken = await side.taken(QUEUE)
    assert taken == sent
    assert all(verify(signed, SECRET) is not None for signed in taken)
    assert verify(taken[0], "cd" * 32) is None
    assert await side.taken(QUEUE) == []


@pytest.mark.parametrize(
    "payload", [r'"\u0000"', "1e400000", '"ä 🦄"', '"' + "x" * (1 << 20) + '"']
)
async def test_a_strange_or_large_payload_arrives_to_the_letter(
    side: Side, payload: str
) -> None:
    await side.engine.send(QUEUE, "o1", order(1, payload))
    (taken,) = await side.taken(QUEUE)
    body = verify(taken, SECRET)
    assert body is not None
    assert f'"payload":{payload}' in body


async def test_a_changed_order_no_longer_verifies(side: Side) -> None:
    await side.engine.send(QUEUE, "o1", order(1))
    (taken,) = await side.taken(QUEUE)
    forged = {**taken, "body": taken["body"].replace("t1", "t2")}
    assert verify(forged, SECRET) is None


async def test_each_queue_has_its_own_orders(side: Side) -> None:
    other = queue_name("n2", "w2")
    await side.engine.send(QUEUE, "o1", order(1))
    await side.engine.send(other, "o2", order(2))
    assert await side.taken(other) == [order(2)]
    assert await side.taken(QUEUE) == [order(1)]


async def test_a_forgotten_queue_is_empty_and_can_be_used_again(side: Side) -> None:
    await side.engine.send(QUEUE, "o1", order(1))
    await side.engine.forget(QUEUE)
    await side.engine.forget(QUEUE)
    assert await side.taken(QUEUE) == []
    await side.engine.send(QUEUE, "o2", order(2))
    assert await side.taken(QUEUE) == [order(2)]


async def test_the_bell_is_rung_at_those_named(side: Side) -> None:
    assert await side.rung(lambda: side.engine.ring(["w1", "w7"])) == ["w1", "w7"]


async def test_a_server_keeps_its_id(side: Side) -> None:
    first = await side.engine.server_id()
    assert first
    assert await side.engine.server_id() == first


async def test_every_call_on_an_engine_that_is_away_says_so(side: Side) -> None:
    await side.engine.server_id()
    side.go_down()
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: side.engine.send(QUEUE, "o1", order(1)),
        lambda: side.engine.forget(QUEUE),
        side.engine.server_id,
        lambda: side.engine.ring(["w1"]),
        lambda: side.engine.grant("n1", "secret"),
        lambda: side.engine.revoke("n1"),
        lambda: side.engine.open("n1", "secret"),
    ]
    for call in calls:
        with pytest.raises(EngineUnavailable):
            async with asyncio.timeout(20):
                await call()


# what only a real Redis has --------------------------------------------------


async def test_a_redis_that_started_anew_has_another_id(
    redis_server: RedisServer,
) -> None:
    engine = Dispatcher(redis_server.url, timeout_s=2.0)
    first = await engine.server_id()
    redis_server.stop()
    redis_server.start()
    assert await engine.server_id() != first
    await engine.send(QUEUE, "o1", order(1))
    await engine.close()


@pytest.mark.spec("D22")
async def test_a_nodes_user_reaches_its_own_queues_and_no_others(
    redis_server: RedisServer,
) -> None:
    engine = Dispatcher(redis_server.url)
    for _ in range(2):
        assert await engine.grant("n1", "secret") == "node-n1"
    await engine.send(QUEUE, "o1", order(1))
    await engine.close()
    own = redis_server.client(username="node-n1", password="secret")
    assert own.llen(QUEUE) == 1
    assert own.brpop([QUEUE], timeout=1)
    other = queue_name("n2", "w2")
    denied: list[Callable[[], Any]] = [
        lambda: own.lrange(other, 0, -1),
        lambda: own.lpush(other, "x"),
        lambda: own.delete("unacked.n2"),
        lambda: own.keys("*"),
        lambda: own.flushall(),
        lambda: own.config_get("*"),
        lambda: own.acl_list(),
        lambda: own.publish("elsewhere", "x"),
        lambda: own.publish("/0.celery.pidbox", "x"),
    ]
    for call in denied:
        with pytest.raises(redis_client.exceptions.NoPermissionError):
            call()
    own.close()
    wrong = redis_server.client(username="node-n1", password="guess")
    with pytest.raises(redis_client.exceptions.AuthenticationError):
        wrong.ping()
    wrong.close()


async def test_nobody_at_the_address_is_told_as_unavailable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        engine = Dispatcher(f"redis://127.0.0.1:{free.getsockname()[1]}/0")
        with pytest.raises(EngineUnavailable, match="Redis does not answer"):
            await engine.server_id()
        await engine.close()
