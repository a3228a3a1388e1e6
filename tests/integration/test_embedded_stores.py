"""Embedded PostgreSQL and Redis, for real: they keep their data and heal."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest
import redis
from kombu.connection import Connection
from redis.backoff import NoBackoff
from redis.retry import Retry

from corral.embedded.folder import Folder
from corral.embedded.postgres import Postgres, open_postgres
from corral.embedded.redis import Redis, open_redis
from corral.embedded.server import StoreServer, running
from corral.errors import EmbeddedError
from corral.process.keep_alive import Process, launch, stop


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "home")
    made.make()
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A folder whose database was made once, for tests that only read settings."""
    folder = Folder(tmp_path_factory.mktemp("made") / "home")
    folder.make()
    return folder


def query(url: str, *statements: str) -> Any:
    """Run statements one after the other; the value of the last."""

    async def ask() -> Any:
        link = await asyncpg.connect(url)
        try:
            for statement in statements[:-1]:
                await link.execute(statement)
            return await link.fetchval(statements[-1])
        finally:
            await link.close()

    return asyncio.run(ask())


def client(server: Redis, **login: Any) -> redis.Redis:
    place: dict[str, Any] = {"port": server.port}
    if server.path is not None:
        place = {"unix_socket_path": str(server.path)}
    login.setdefault("password", server.password)
    return redis.Redis(retry=Retry(NoBackoff(), 0), **place, **login)


def log_of(server: StoreServer, folder: Folder) -> Path:
    return folder.logs / f"{server.name}.log"


def start(server: StoreServer, folder: Folder) -> Process:
    """Start without the manners of `running`, to be killed."""
    process = launch(server.prepare(0), log_of(server, folder))
    while not server.is_ready():
        assert process.popen.poll() is None
        os.sched_yield()
    return process


def kill(process: Process) -> None:
    process.popen.kill()
    process.popen.wait()


def test_committed_rows_outlive_a_killed_postgres(folder: Folder) -> None:
    server = open_postgres(folder)
    process = start(server, folder)
    query(server.url, "create table kept (n int)", "insert into kept values (1)")
    kill(process)
    assert (server.data / "postmaster.pid").exists()
    again = open_postgres(folder)
    revived = restart(again, folder)
    assert query(again.url, "select count(*) from kept") == 1
    assert stop(revived.popen, 10, again.stop_signal) == 0
    with running(again, log_of(again, folder)):
        assert query(again.url, "select count(*) from kept") == 1


def restart(server: StoreServer, folder: Folder) -> Process:
    """Start after a kill; backends of the killed one may need a moment to go."""
    for deaths in range(1, 50):
        process = launch(server.prepare(deaths), log_of(server, folder))
        while process.popen.poll() is None:
            if server.is_ready():
                return process
    pytest.fail("it never came back")


def test_postgres_keeps_its_promises_and_its_doors_shut(made: Folder) -> None:
    server = open_postgres(made)
    with running(server, log_of(server, made)):
        for name in ("fsync", "synchronous_commit", "full_page_writes"):
            assert query(server.url, f"show {name}") == "on"
        assert query(server.url, "show listen_addresses") == ""
        wrong = server.url.replace(server.password, "wrong")
        with pytest.raises(asyncpg.InvalidPasswordError):
            query(wrong, "select 1")
        assert_no_secret_in_arguments(server.password)
    assert stat.S_IMODE(server.data.stat().st_mode) == 0o700


def assert_no_secret_in_arguments(secret: str) -> None:
    arguments = [p.info["cmdline"] or [] for p in psutil.process_iter(["cmdline"])]
    assert not [words for words in arguments if secret in " ".join(words)]


def test_postgres_listens_on_a_loopback_port_where_told(made: Folder) -> None:
    server = open_postgres(made, tcp=True)
    with running(server, log_of(server, made)):
        assert query(server.url, "show listen_addresses") == "127.0.0.1"
        assert "host=" not in server.url


def test_lost_password_file_is_replaced(made: Folder) -> None:
    old = open_postgres(made).password
    (made.secrets / "postgres.password").unlink()
    server = open_postgres(made)
    assert server.password != old
    with running(server, log_of(server, made)):
        assert query(server.url, "select 1") == 1


def test_pid_file_that_names_a_stranger_does_not_block(made: Folder) -> None:
    server = open_postgres(made)
    note = server.data / "postmaster.pid"
    note.write_text(f"{os.getppid()}\n{server.data}\n0\n5432\n")
    with running(server, log_of(server, made)):
        assert query(server.url, "select 1") == 1


def test_postgres_left_running_is_stopped_before_the_next_start(made: Folder) -> None:
    server = open_postgres(made)
    orphan = start(server, made)
    with running(server, log_of(server, made)):
        assert orphan.popen.poll() == 0
        assert query(server.url, "select 1") == 1


def test_own_settings_of_the_user_are_taken_in(made: Folder) -> None:
    (made.postgres / "local.conf").write_text("work_mem = '3MB'\n")
    server = open_postgres(made)
    try:
        with running(server, log_of(server, made)):
            assert query(server.url, "show work_mem") == "3MB"
    finally:
        (made.postgres / "local.conf").unlink()


def test_half_made_database_is_made_anew(folder: Folder) -> None:
    (folder.postgres / "data.new").mkdir()
    (folder.postgres / "data.new" / "PG_VERSION").write_text("18")
    server = open_postgres(folder)
    with running(server, log_of(server, folder)):
        assert query(server.url, "select current_database()") == "corral"
    assert not (folder.postgres / "data.new").exists()


def test_data_of_another_version_are_one_clear_error(folder: Folder) -> None:
    (folder.postgres / "data").mkdir()
    (folder.postgres / "data" / "PG_VERSION").write_text("9\n")
    with pytest.raises(EmbeddedError, match="made by PostgreSQL 9"):
        open_postgres(folder)


def test_start_that_fails_says_why(folder: Folder) -> None:
    (folder.postgres / "local.conf").write_text("work_mem = 'a lot'\n")
    server = open_postgres(folder)
    with (
        pytest.raises(EmbeddedError, match="configuration file"),
        running(server, log_of(server, folder)),
    ):
        pytest.fail("it started")


if os.geteuid() == 0:

    def test_root_in_a_container_without_user_namespaces_gets_a_postgres(
        folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Both ways in turn on the same data, so that files change their owner."""
        path = os.environ["PATH"]
        (tmp_path / "bin").mkdir()
        refusing = tmp_path / "bin" / "unshare"
        refusing.write_text("#!/bin/sh\nexit 1\n")
        refusing.chmod(0o755)
        owners = []
        for variable in (path, f"{refusing.parent}:{path}", path):
            monkeypatch.setenv("PATH", variable)
            server = open_postgres(folder)
            with running(server, log_of(server, folder)):
                assert query(server.url, "select 1") == 1
                owners.append(server.data.stat().st_uid)
        assert owners[0] == owners[2] == 0
        assert owners[1] != 0
        assert stat.S_IMODE(folder.home.stat().st_mode) == 0o700


@pytest.mark.spec("C51")
def test_redis_keeps_orders_over_a_stop_and_a_kill(folder: Folder) -> None:
    server = open_redis(folder)
    with running(server, log_of(server, folder)):
        client(server).rpush("w.n.1", "first")
    process = start(server, folder)
    client(server).rpush("w.n.1", "second")
    # It writes its file before it answers; only the disk's cache may lag.
    kill(process)
    with running(server, log_of(server, folder)):
        assert client(server).lrange("w.n.1", 0, -1) == [b"first", b"second"]


@pytest.mark.parametrize("tcp", [False, True])
def test_redis_answers_only_those_with_the_password(folder: Folder, tcp: bool) -> None:
    server = open_redis(folder, tcp=tcp)
    with running(server, log_of(server, folder)):
        for login in ({"password": "wrong"}, {"password": None}):
            with pytest.raises(redis.AuthenticationError):
                client(server, **login).ping()
        told = client(server).config_get("*")
        assert told["maxmemory-policy"] == "noeviction"
        assert told["appendonly"] == "yes"
        assert_no_secret_in_arguments(server.password)
    assert stat.S_IMODE(server.config.stat().st_mode) == 0o600


@pytest.mark.parametrize("tcp", [False, True])
def test_celery_and_redis_py_both_understand_the_address(
    folder: Folder, tcp: bool
) -> None:
    server = open_redis(folder, tcp=tcp)
    with running(server, log_of(server, folder)):
        assert redis.Redis.from_url(server.client_url).ping()
        make: Any = Connection
        with make(server.url) as link, link.SimpleQueue("orders") as queue:
            queue.put({"id": 1})
            message = queue.get(timeout=60)
            message.ack()
            assert message.payload == {"id": 1}


def test_redis_gives_a_node_rights_to_its_own_queues_only(folder: Folder) -> None:
    server = open_redis(folder)
    with running(server, log_of(server, folder)):
        rules: dict[str, Any] = {"keys": ["w.n1.*"], "commands": ["+@all"]}
        client(server).acl_setuser("n1", enabled=True, passwords=["+pw"], **rules)
        node = client(server, username="n1", password="pw")
        assert node.lpush("w.n1.a", "order") == 1
        with pytest.raises(redis.exceptions.NoPermissionError):
            node.lpush("w.n2.a", "order")


# What the Redis 6.2 that was embedded before left in its folder: two orders, one of
# them after the file was last rewritten, and what Celery keeps beside them.
DATA_OF_6_2 = {
    "appendonly.aof": (
        "Qbj~bQ!p?vIr<55Wn^h{Ep}yc1~x7-E-^Iv3UXy+X>%=NX>@bIK>7t^bZKp6!fW>WYWfIub7"
        "f>LZDno3U{VeM`V3)jW-V}XWnpb%Y-PX!{s8*~00JCeYj160buMCQZe(e0XD(x9Y-MtJE^uj"
        "NVsCf>0eB7tcP?%&cL5R-0000A00001000GVa%5$4{|yOsZee3<Wn?aH5fK0Y01W^D00IC20"
        "dxZaZT}1pb#7r}Yh`3#X>Md?crI=e6951J4FCWD0ssI3bOQr1E;axEit^z=`I(@GDl!cUBsL"
        "8SQ$<WgLsSh4Bry#NFbxVSGYtwPH4O?(P*qb%4GJVR4GMQIZZ3BX3M4fR3T$C?WpWJ)"
    ),
    "dump.rdb": (
        "Qbj~bQ!p?vIr<55Wn^h{Ep}yc1~x7-E-^Iv3UXy+X>%=NX>@bIK>7t^bZKp6!ff{XYWfIub7"
        "f>LZDno3NKy^}`V3)jW-V}XWnpb%Y-PXz{s8*~00JCeYj160buMCQZe(e0XD(x9Y-MtJE^uj"
        "NVsCf>0eB7tcP?%&cL5n00000H00002000GSVRU732L*3(WMy*y4GDE_VPk7$WG-$I5dZ)H4"
        "FCWD0ssI3bOQlx{|paxZee3<Wn^DzZe(S6E^ZSO0000D000020004W0|PNGHUIxcp%fc(z8k"
        "6"
    ),
}


@pytest.mark.parametrize(
    ("names", "orders"),
    [
        # With its log switched on it reads nothing else.
        (["appendonly.aof"], [b"later", b"order"]),
        (["appendonly.aof", "dump.rdb"], [b"later", b"order"]),
        (["dump.rdb"], []),
    ],
)
def test_data_of_an_older_redis_are_taken_over(
    folder: Folder, names: list[str], orders: list[bytes]
) -> None:
    for name in names:
        (folder.redis / name).write_bytes(base64.b85decode(DATA_OF_6_2[name]))
    server = open_redis(folder)
    for _ in range(2):
        with running(server, log_of(server, folder)):
            assert client(server).lrange("w.n.w", 0, -1) == orders
    assert not list(folder.redis.glob("broken-*"))


def test_redis_that_dies_of_its_data_starts_without_them(folder: Folder) -> None:
    (folder.redis / "appendonly.aof").write_bytes(b"*1\r\n$7\r\ngarbage\r\nnoise")
    server = open_redis(folder)
    for deaths in range(2):
        process = launch(server.prepare(deaths), log_of(server, folder))
        assert process.popen.wait(60) != 0
    launched = launch(server.prepare(2), log_of(server, folder))
    while not server.is_ready():
        assert launched.popen.poll() is None
    launched.popen.send_signal(signal.SIGTERM)
    assert launched.popen.wait(60) == 0
    (shelf,) = folder.redis.glob("broken-*")
    # Redis 7 and newer put an older log into a folder of its own first.
    (kept,) = shelf.rglob("appendonly.aof")
    assert kept.read_bytes().endswith(b"noise")


def test_stores_die_with_their_parent(folder: Folder) -> None:
    """Killed without a word, the parent leaves neither of them behind."""
    code = (
        "import sys, signal\n"
        "from pathlib import Path\n"
        "from corral.embedded.folder import Folder\n"
        "from corral.embedded.postgres import open_postgres\n"
        "from corral.embedded.redis import open_redis\n"
        "from corral.embedded.server import running\n"
        "folder = Folder(Path(sys.argv[1]))\n"
        "pg, redis = open_postgres(folder), open_redis(folder)\n"
        "with running(pg, Path('pg.log')), running(redis, Path('redis.log')):\n"
        "    print('up', flush=True)\n"
        "    signal.pause()\n"
    )
    source = str(Path(sys.modules["corral"].__path__[0]).parent)
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder.home)],
        stdout=subprocess.PIPE,
        cwd=folder.home,
        env={**os.environ, "PYTHONPATH": source},
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        family = psutil.Process(parent.pid).children(recursive=True)
        assert len(family) >= 4
        parent.kill()
    psutil.wait_procs(family, timeout=60)
    left = [p for p in family if p.is_running()]
    assert not [p for p in left if p.status() != psutil.STATUS_ZOMBIE]


def test_two_folders_run_side_by_side(made: Folder, folder: Folder) -> None:
    one, two = open_postgres(made), open_postgres(folder)
    with running(one, log_of(one, made)), running(two, log_of(two, folder)):
        assert isinstance(one, Postgres)
        assert one.password != two.password
        query(two.url, "create table only_here (n int)", "select 1")
        found = "select count(*) from pg_tables where tablename = 'only_here'"
        assert query(one.url, found) == 0
