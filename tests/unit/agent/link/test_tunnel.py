"""Redis through the tunnel and straight: redis-py, kombu and Celery at its end."""

from __future__ import annotations

import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
import redis
from celery import Celery
from redis.backoff import NoBackoff
from redis.retry import Retry
from websockets.sync.server import serve

from corral.agent.link import broker
from corral.agent.link.tunnel import LONGEST_PATH, Tunnel
from corral.wire.agent import RedisAccess
from tests.unit.agent.conftest import RedisServer, wait_until
from tests.unit.agent.standin import StandInManager


@pytest.fixture
def access(redis_server: RedisServer) -> RedisAccess:
    return RedisAccess(
        username=redis_server.user, password=redis_server.password, database=3
    )


@pytest.fixture
def tunnel(
    manager: StandInManager, redis_server: RedisServer, tmp_path: Path
) -> Iterator[Tunnel]:
    manager.redis_socket = redis_server.path
    opened = Tunnel(manager.url, manager.key, tmp_path)
    yield opened
    opened.close()


def path_of(tunnel: Tunnel) -> str:
    return tunnel.address.removeprefix("unix://")


def client_of(tunnel: Tunnel, access: RedisAccess) -> redis.Redis:
    return redis.Redis(
        unix_socket_path=path_of(tunnel),
        username=access.username,
        password=access.password,
        db=access.database,
        socket_timeout=60,
        retry=Retry(NoBackoff(), 0),
    )


def application(url: str) -> Celery:
    return Celery("corral", broker=url, set_as_current=False)


def test_redis_answers_through_the_tunnel_under_the_nodes_user(
    tunnel: Tunnel, access: RedisAccess
) -> None:
    big = b"\x00\xff" * 1_000_000
    with client_of(tunnel, access) as client:
        assert client.acl_whoami() == access.username
        client.set("big", big)
        assert client.get("big") == big
    assert broker.answers(broker.worker_url(tunnel.address, access))


def test_a_wrong_password_is_refused_at_the_far_end(
    tunnel: Tunnel, access: RedisAccess
) -> None:
    wrong = RedisAccess(username=access.username, password="wrong")
    assert not broker.answers(broker.worker_url(tunnel.address, wrong))


def test_a_blocking_pop_waits_through_the_tunnel(
    tunnel: Tunnel, access: RedisAccess
) -> None:
    with client_of(tunnel, access) as waiting, client_of(tunnel, access) as giving:
        found: list[object] = []
        thread = threading.Thread(
            target=lambda: found.append(waiting.brpop(["list"], timeout=30))
        )
        thread.start()
        giving.lpush("list", "item")
        thread.join(60)
    assert found == [(b"list", b"item")]


def test_kombu_publishes_and_consumes_with_the_workers_url(
    tunnel: Tunnel, access: RedisAccess
) -> None:
    with application(broker.worker_url(tunnel.address, access)) as app:
        connection = app.connection_for_write()
        queue = connection.SimpleQueue("w.node-1.w1")
        queue.put({"n": 1})
        message = queue.get(timeout=30)
        assert message.payload == {"n": 1}
        message.ack()
        queue.close()
        connection.close()
    with client_of(tunnel, access) as client:
        assert client.exists("_kombu.binding.w.node-1.w1")


def test_a_celery_application_sends_through_the_tunnel(
    tunnel: Tunnel, access: RedisAccess
) -> None:
    with application(broker.worker_url(tunnel.address, access)) as app:
        app.send_task("corral.order", args=[{}], queue="w.node-1.w2")
    with client_of(tunnel, access) as client:
        assert client.llen("w.node-1.w2") == 1


def test_only_its_user_can_reach_the_socket(tunnel: Tunnel) -> None:
    mode = Path(path_of(tunnel)).stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_a_folder_too_deep_for_a_socket_gets_a_short_one(
    manager: StandInManager, tmp_path: Path
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    opened = Tunnel(manager.url, manager.key, deep)
    path = Path(path_of(opened))
    assert len(str(path)) < LONGEST_PATH
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    # Opened again without a close, as after a kill: nothing is left behind.
    Tunnel(manager.url, manager.key, deep).close()
    assert not path.parent.exists()
    assert list(deep.iterdir()) == []
    opened.close()


def test_an_end_on_the_local_side_ends_the_far_side(
    tunnel: Tunnel, access: RedisAccess, redis_server: RedisServer
) -> None:
    with client_of(tunnel, access) as client:
        name = "tunnel-left"
        client.client_setname(name)
        assert tunnel.connections == 1
    wait_until(lambda: tunnel.connections == 0)
    with redis.Redis(port=redis_server.port, password="root") as root:
        wait_until(lambda: all(c["name"] != name for c in root.client_list()))


def test_an_end_on_the_far_side_ends_the_local_side(
    tunnel: Tunnel, manager: StandInManager
) -> None:
    with socket.socket(socket.AF_UNIX) as local:
        local.settimeout(60)
        local.connect(path_of(tunnel))
        wait_until(lambda: tunnel.connections == 1)
        local.sendall(b"QUIT\r\n")
        assert local.recv(100) == b"+OK\r\n"
        assert local.recv(100) == b""
    wait_until(lambda: tunnel.connections == 0)


def test_the_tunnel_carries_again_after_a_manager_restart(
    tunnel: Tunnel, manager: StandInManager, access: RedisAccess
) -> None:
    with client_of(tunnel, access) as client:
        assert client.ping()
        manager.stop()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        manager.start()
        assert client.ping()


def test_a_refused_key_closes_the_local_connection(
    manager: StandInManager, tmp_path: Path
) -> None:
    opened = Tunnel(manager.url, "corral_n1_wrong", tmp_path)
    with socket.socket(socket.AF_UNIX) as local:
        local.settimeout(60)
        local.connect(path_of(opened))
        assert local.recv(100) == b""
    opened.close()


def test_closing_the_tunnel_ends_its_connections_and_its_socket(
    tunnel: Tunnel,
) -> None:
    with socket.socket(socket.AF_UNIX) as local:
        local.settimeout(60)
        local.connect(path_of(tunnel))
        wait_until(lambda: tunnel.connections == 1)
        tunnel.close()
        assert local.recv(100) == b""
    assert not Path(path_of(tunnel)).exists()


@pytest.mark.parametrize("shape", ["tcp", "unix", "redis+socket"])
def test_a_redis_that_answers_from_here_is_used_straight(
    redis_server: RedisServer, access: RedisAccess, shape: str
) -> None:
    address = {
        "tcp": f"redis://127.0.0.1:{redis_server.port}",
        "unix": f"unix://{redis_server.path}",
        "redis+socket": f"redis+socket://{redis_server.path}",
    }[shape]
    granted = msgspec.structs.replace(access, direct_url=address, database=2)
    url = broker.direct_way(granted, None)
    assert url is not None
    assert quote(str(access.password), safe="") in url
    with application(url) as app, app.connection_for_read() as connection:
        connection.ensure_connection(max_retries=1)


def test_the_configured_redis_comes_before_the_managers_and_keeps_no_login(
    redis_server: RedisServer, access: RedisAccess
) -> None:
    override = f"redis://:root@127.0.0.1:{redis_server.port}/0"
    granted = msgspec.structs.replace(access, direct_url="redis://127.0.0.1:9")
    url = broker.direct_way(granted, override)
    assert url is not None
    assert "root" not in url
    assert url.endswith(f"127.0.0.1:{redis_server.port}/3")


def test_a_redis_that_does_not_answer_from_here_is_no_way() -> None:
    nowhere = RedisAccess(username="u", password="p")
    silent = msgspec.structs.replace(nowhere, direct_url="redis://127.0.0.1:9")
    assert broker.direct_way(silent, None) is None
    assert broker.direct_way(nowhere, None) is None


def test_a_redis_behind_tls_is_verified() -> None:
    url = broker.worker_url(
        "rediss://host:6380", RedisAccess(username="u", password="p")
    )
    assert url == "rediss://u:p@host:6380/0?ssl_cert_reqs=required"


def test_why_the_manager_ended_a_tunnel_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serve(lambda ws: ws.close(4403, "it has no password"), "127.0.0.1", 0) as far:
        threading.Thread(target=far.serve_forever, daemon=True).start()
        port = far.socket.getsockname()[1]
        opened = Tunnel(f"http://127.0.0.1:{port}", "key", tmp_path)
        try:
            with socket.socket(socket.AF_UNIX) as near:
                near.connect(path_of(opened))
                assert near.recv(1) == b""
            wait_until(lambda: "it has no password" in caplog.text)
        finally:
            opened.close()
