"""H4: what a node's way to Redis is good for, on the real server."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from kombu.exceptions import OperationalError
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError
from redis.retry import Retry
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from corral.cli.serve.manager import check_redis
from corral.doctor.check import CheckStatus
from corral.doctor.role import look
from corral.doctor.store import StoreUrl
from corral.doctor.store import redis as doctor_redis
from corral.embedded.folder import Folder
from corral.embedded.redis import Redis, open_redis
from corral.embedded.server import running
from corral.engine.address import parse_address
from corral.engine.celery_app import URL_FILE, make_app
from corral.engine.dispatch import Dispatcher
from corral.engine.envelope import message
from corral.errors import Forbidden, SettingsError
from tests.acceptance.cluster import until
from tests.security.conftest import Attacked
from tests.unit.worker.standin_manager import (
    NODE,
    QUEUE,
    WORKER,
    StandInManager,
    make_order,
    order_item,
)
from tests.unit.worker.supervised import Supervised

SECRET = "an input that is nobody else's"


def command(*words: str) -> bytes:
    parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
    return f"*{len(words)}\r\n{''.join(parts)}".encode()


def link(url: str, **login: str) -> redis.Redis:
    where = parse_address(url)
    place: dict[str, Any] = {"unix_socket_path": where.path}
    if where.path is None:
        place = {"host": where.host, "port": where.port}
    place |= login or {"password": where.password or ""}
    return redis.Redis(**place, retry=Retry(NoBackoff(), 0))


# a node of the attacked cluster: a key from one join, and nothing but HTTP ------------


@dataclass(frozen=True)
class Taken:
    """A node in the hands of an attacker."""

    attacked: Attacked
    id: str
    key: str
    login: dict[str, str]

    @property
    def engine_url(self) -> str:
        return (self.attacked.cluster.home / URL_FILE).read_text().strip()

    def redis(self) -> redis.Redis:
        """Straight, as code on the manager's machine could."""
        return link(self.engine_url, **self.login)

    def tunnel(self) -> ClientConnection:
        url = f"ws://{urlsplit(self.attacked.cluster.url).netloc}/engine"
        header = {"Authorization": f"Bearer {self.key}"}
        return connect(url, additional_headers=header, proxy=None, compression=None)


def take(attacked: Attacked) -> Taken:
    with attacked.http("admin") as admin, attacked.http() as http:
        token = admin.post("/join-tokens", json={"uses": 1}).json()["token"]
        bearer = {"Authorization": f"Bearer {token}"}
        told = http.post("/nodes/join", json={"hostname": "x"}, headers=bearer).json()
        bearer = {"Authorization": f"Bearer {told['key']}"}
        place = f"/nodes/{told['node_id']}/register"
        said = http.post(place, json={"hostname": "x"}, headers=bearer)
        assert said.status_code == 200, said.text
        engine = said.json()["engine"]
    login = {name: engine[name] for name in ("username", "password")}
    return Taken(attacked, told["node_id"], told["key"], login)


@pytest.fixture(scope="module")
def taken(attacked: Attacked) -> Taken:
    return take(attacked)


def test_h4_2_a_nodes_user_may_say_what_celery_says_and_no_more(taken: Taken) -> None:
    own, other = f"w.{taken.id}.w1", "w.another.w1"
    with taken.redis() as node:
        assert node.lpush(own, "x") == 1
        assert node.brpop([own], timeout=1)
        denied: list[Callable[[], Any]] = [
            lambda: node.eval("return 1", 0),
            lambda: node.script_load("return 1"),
            lambda: node.script_flush(),
            lambda: node.function_load("#!lua name=x\n"),
            lambda: node.pfadd(own, "x"),
            lambda: node.xadd(own, {"x": "y"}),
            lambda: node.setbit(own, 1 << 20, 1),
            lambda: node.lrange(own, 0, -1),
            lambda: node.keys("*"),
            lambda: node.info(),
            lambda: node.config_get("dir"),
            lambda: node.acl_whoami(),
            lambda: node.acl_list(),
            lambda: node.client_list(),
            lambda: node.flushall(),
            lambda: node.execute_command("MONITOR"),
            lambda: node.lpush(other, "x"),
            lambda: node.brpop([other], timeout=1),
            lambda: node.delete("unacked.another"),
            # Where messages of plain Celery clients are sent on to.
            lambda: node.sadd("_kombu.binding.celery", "celery\x06\x16\x06\x16w"),
            lambda: node.zadd("_kombu.binding_deadlines", {"celery": 0}),
            lambda: node.rpop("somebody.reply.celery.pidbox"),
            lambda: node.publish("/0.celery.pidbox", "{}"),
        ]
        for act in denied:
            with pytest.raises(NoPermissionError):
                act()


def test_h4_2_the_one_script_a_node_runs_was_loaded_for_it(taken: Taken) -> None:
    with taken.redis() as node, node.lock(f"unacked_mutex.{taken.id}", timeout=9):
        pass  # taken and given back by a script, by its digest
    with taken.redis() as node, pytest.raises(NoPermissionError):
        node.lock("unacked_mutex.another", timeout=9).acquire()


def test_h4_3_a_tunnel_is_the_nodes_before_its_first_byte(taken: Taken) -> None:
    """Nothing was said of a user, and it is neither nobody nor `default`."""
    with taken.tunnel() as tunnel:
        tunnel.send(command("PING"))
        assert tunnel.recv(timeout=30) == b"+PONG\r\n"
        tunnel.send(command("CONFIG", "GET", "dir"))
        said = bytes(tunnel.recv(timeout=30, decode=False))
        assert said.startswith(b"-NOPERM")
        # As every client begins; it may be itself once more.
        login = taken.login["username"], taken.login["password"]
        tunnel.send(command("HELLO", "3", "AUTH", *login))
        assert bytes(tunnel.recv(timeout=30, decode=False)).startswith(b"%")


def hear_all(tunnel: ClientConnection) -> None:
    while True:
        assert tunnel.recv(timeout=30) == b"+PONG\r\n"


@pytest.mark.parametrize(
    "said",
    [
        command("AUTH", "default", "guess"),
        command("auth", "guess"),
        command("PING") + command("HELLO", "3", "AUTH", "default", "guess"),
        command("RESET"),
        b"AUTH default guess\r\n",
        b"*1\r\n$4\r\nPINGxx*2\r\n$4\r\nAUTH\r\n$5\r\nguess\r\n",
    ],
)
def test_h4_3_nobody_else_can_be_had_in_a_tunnel(taken: Taken, said: bytes) -> None:
    with taken.tunnel() as tunnel:
        tunnel.send(said)
        with pytest.raises(ConnectionClosed) as ended:
            hear_all(tunnel)
    assert ended.value.rcvd is not None
    assert ended.value.rcvd.code == 4403
    assert ended.value.rcvd.reason


def test_h4_4_a_removed_node_loses_its_tunnels_and_its_user(attacked: Attacked) -> None:
    node = take(attacked)
    straight = node.redis()
    straight.ping()
    with node.tunnel() as tunnel, attacked.http("admin") as admin:
        tunnel.send(command("PING"))
        assert tunnel.recv(timeout=30) == b"+PONG\r\n"
        assert admin.delete(f"/nodes/{node.id}").status_code < 300
        bearer = {"Authorization": f"Bearer {node.key}"}
        with attacked.http(**bearer) as http:
            # It hears that it is to leave; what it does then is its own affair.
            http.get(f"/nodes/{node.id}/desired", params={"since": -1})
        with pytest.raises(ConnectionClosed):
            tunnel.recv(timeout=30)
    admin_link = link(node.engine_url)
    with admin_link:
        until(
            "its user is deleted",
            lambda: node.login["username"] not in admin_link.acl_users(),
            30,
        )
    with pytest.raises(redis.exceptions.ConnectionError):
        straight.ping()
    straight.close()
    with node.redis() as again, pytest.raises(redis.exceptions.AuthenticationError):
        again.ping()


# servers of our own -------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    folder = Folder(tmp_path_factory.mktemp("r"))
    folder.make()
    made = open_redis(folder)
    with running(made, folder.logs / "redis.log"):
        yield made


@dataclass(frozen=True)
class Broker:
    """Where a supervisor's Redis is."""

    url: str


def test_h4_1_running_inputs_are_shown_to_nobody(server: Redis, tmp_path: Path) -> None:
    """Not to an admin by Celery's remote control, and another node cannot even ask."""

    async def grant() -> None:
        engine = Dispatcher(server.url)
        for node_id in (NODE, "n-2"):
            assert await engine.grant(node_id, "pw")
        await engine.close()

    asyncio.run(grant())
    at = f"pw@{server.path}?virtual_host=0"
    broker: Any = Broker(f"redis+socket://node-{NODE}:{at}")
    manager = StandInManager()
    worker = Supervised(manager, broker, tmp_path)
    admin = make_app(server.url)
    neighbour = make_app(f"redis+socket://node-n-2:{at}", node_id="n-2")
    names = [f"{WORKER}@corral"]
    try:
        worker.start("corral.worker.builtin:SleepWorker")
        order = make_order(order_item("t", {"seconds": 60, "note": SECRET}))
        with link(server.url) as client:
            client.lpush(QUEUE, message("o-1", order, QUEUE))
        manager.wait_for(lambda: [s for r in manager.reports for s in r["started"]])
        ask = admin.control.inspect(destination=names, timeout=30, limit=1)
        seen = [ask.active(safe=False), ask.query_task("o-1"), ask.reserved()]
        assert [order["args"] for order in seen[0][names[0]]] == ["(order)"]
        assert seen[1][names[0]]["o-1"][0] == "active"
        assert SECRET not in str(seen)
        assert "signature" not in str(seen)
        with pytest.raises(NoPermissionError):
            neighbour.control.inspect(destination=names, timeout=2, limit=1).active()
        with pytest.raises(OperationalError, match="No permissions"):
            neighbour.control.broadcast("active", destination=names)
    finally:
        worker.close()
        manager.close()
        admin.close()
        neighbour.close()


def test_h4_3_a_redis_without_a_password_carries_no_node(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "r")
    folder.make()
    made = open_redis(folder)
    with running(made, tmp_path / "redis.log"):
        with link(made.url) as client:
            client.config_set("requirepass", "")
        url = f"redis+socket://{made.path}?virtual_host=0"

        async def open_tunnel() -> None:
            engine = Dispatcher(url)
            try:
                assert await engine.grant("n-1", "pw") == "node-n-1"
                await engine.open("n-1", "pw")
            finally:
                await engine.close()

        with pytest.raises(Forbidden, match="CORRAL_REDIS_URL"):
            asyncio.run(open_tunnel())
        (line,) = doctor_redis(StoreUrl(url, "CORRAL_REDIS_URL"), look(tmp_path))
    assert line.verdict is CheckStatus.PROBLEM
    assert "requirepass" in line.fix


def test_h4_2_an_old_redis_is_refused_unless_it_is_trusted(
    server: Redis, tmp_path: Path
) -> None:
    role = look(tmp_path)

    async def check(url: str, *, is_trusted: bool) -> None:
        engine = Dispatcher(url)
        try:
            await check_redis(engine, is_trusted=is_trusted)
        finally:
            await engine.close()

    with older(server) as url:
        with pytest.raises(SettingsError, match=r"6\.2\.4 .* CORRAL_REDIS_TRUSTED=1"):
            asyncio.run(check(url, is_trusted=False))
        asyncio.run(check(url, is_trusted=True))
        given = StoreUrl(url, "CORRAL_REDIS_URL")
        (line,) = doctor_redis(given, role)
        assert line.verdict is CheckStatus.PROBLEM
        assert "CORRAL_REDIS_TRUSTED=1" in line.fix
        (line,) = doctor_redis(given, role, is_trusted=True)
        assert line.verdict is CheckStatus.WARN
        assert "CORRAL_REDIS_TRUSTED" in line.found
    asyncio.run(check(server.url, is_trusted=False))


@contextmanager
def older(server: Redis) -> Iterator[str]:
    """The same server, which says that it is an older one."""
    listener = socket.create_server(("127.0.0.1", 0))
    opened: list[socket.socket] = []
    carriers: list[threading.Thread] = []

    def carry(source: socket.socket, target: socket.socket) -> None:
        # Either side may have gone; whoever opened the sockets closes them.
        with suppress(OSError):
            while data := source.recv(1 << 20):
                said = data.replace(b"valkey_version:", b"another_number:")
                target.sendall(
                    said.replace(b"redis_version:7.2.4", b"redis_version:6.2.4")
                )
            target.shutdown(socket.SHUT_WR)

    def accept() -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(str(server.path))
            opened.extend((near, far))
            for ends in ((near, far), (far, near)):
                carriers.append(threading.Thread(target=carry, args=ends, daemon=True))
                carriers[-1].start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"redis://:{server.password}@127.0.0.1:{listener.getsockname()[1]}/0"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for each in opened:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for carrier in carriers:
            carrier.join()
        for each in opened:
            each.close()
