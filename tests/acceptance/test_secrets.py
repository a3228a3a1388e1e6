"""Named secrets on a real cluster: scripts have them, nothing else shows them."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest
import redis

from corral.engine.address import parse_address
from corral.worker.script.secrets import Mask
from tests.acceptance.cluster import CORRAL, Cluster, until
from tests.containers import SHELL, engine, podman_files, settings

__all__ = ["engine", "podman_files", "settings"]
pytestmark = pytest.mark.timeout(240)

WORKER = "corral.worker.script.worker:RunScriptWorker=run_script"
VALUE = "s3cr3t-Value/42+long"
# The script knows its secret, and says it in every way it can.
SAYS = """
test "$TOKEN" = "$EXPECTED$END" && echo known
echo "plain $TOKEN"
printf %s "$TOKEN" | base64
echo "::progress 1/2 at $TOKEN"
echo "error $TOKEN" >&2
exit 3
"""
SPLIT = {"EXPECTED": VALUE[:8], "END": VALUE[8:]}


@pytest.fixture(scope="module")
def cluster(
    podman_files: Path, engine: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    started = Cluster.start(
        tmp_path_factory.mktemp("secrets"),
        [WORKER],
        CONTAINERS_CONF=str(podman_files / "containers.conf"),
        CONTAINERS_STORAGE_CONF=str(podman_files / "storage.conf"),
    )
    try:
        started.serving("run_script")
        set_secret(started, VALUE)
        yield started
    finally:
        started.stop()


def set_secret(cluster: Cluster, value: str, name: str = "HF_TOKEN") -> None:
    subprocess.run(
        [*CORRAL, "secret", "set", name, "-"],
        env={**cluster.environment, "CORRAL_MANAGER_URL": cluster.url},
        input=value.encode(),
        check=True,
        capture_output=True,
    )


def variables() -> list[str]:
    return [word for n, v in SPLIT.items() for word in ("--env", f"{n}={v}")]


@pytest.mark.parametrize("where", [(), ("--image", SHELL)], ids=["sandbox", "image"])
def test_a_script_has_its_secret_and_its_output_does_not(
    cluster: Cluster, where: tuple[str, ...]
) -> None:
    ran = cluster.corral(
        "run",
        *where,
        "--secret",
        "TOKEN=HF_TOKEN",
        *variables(),
        "--",
        "sh",
        "-c",
        SAYS,
    )
    assert ran.code == 3
    assert ran.out.splitlines() == ["known", "plain ***", "***"]
    assert "error ***" in ran.err
    (task,) = list(cluster.client.list_tasks())[:1]
    told = json.dumps(cluster.client.get_task(task.task_id).to_dict())
    assert VALUE not in told
    assert "error ***" in told


def test_a_rotated_secret_is_used_by_the_next_attempt(cluster: Cluster) -> None:
    set_secret(cluster, "first value", "ROTATED")
    words = ["run", "--secret", "ROTATED", "--", "sh", "-c"]
    assert cluster.corral(*words, 'test "$ROTATED" = "first value"').code == 0
    set_secret(cluster, "second value", "ROTATED")
    assert cluster.corral(*words, 'test "$ROTATED" = "second value"').code == 0
    cluster.client.pause_job_type("run_script")
    waits = cluster.corral("run", "--detach", *words[1:], "true").out.strip()
    assert cluster.corral("secret", "remove", "ROTATED").code == 0
    cluster.client.resume_job_type("run_script")
    ended = cluster.client.wait(waits, 60)
    assert ended.error is not None
    assert "no secret 'ROTATED'" in ended.error.message
    ran = cluster.corral(*words, "true")
    assert (ran.code, "no secret 'ROTATED'" in ran.err) == (1, True)


async def rows_of(url: str) -> str:
    """Every row of every table, as text."""
    connection = await asyncpg.connect(url)
    tables = await connection.fetch(
        "select tablename from pg_tables where schemaname = 'public'"
    )
    found = []
    for table in tables:
        rows = await connection.fetch(f"select t::text from {table[0]} t")
        found += [row[0] for row in rows]
    await connection.close()
    assert any("HF_TOKEN" in row for row in found)
    return "\n".join(found)


def keys_of(url: str) -> bytes:
    """Everything Redis holds; messages lie in lists."""
    where = parse_address(url)
    with redis.Redis(
        unix_socket_path=where.path, password=where.password, db=where.database
    ) as client:
        found = [client.dump(key) for key in client.scan_iter()]
        found += [
            message
            for key in client.scan_iter(_type="LIST")
            for message in client.lrange(key, 0, -1)
        ]
    assert found
    return b"\n".join(found)


def shows(data: bytes) -> bool:
    """Is the value in it, in any form?"""
    return Mask([VALUE]).cover(data) != data


def command_lines() -> str:
    lines: list[str] = []
    for process in psutil.process_iter(["cmdline"]):
        lines += process.info["cmdline"] or ()
    return "\n".join(lines)


def test_a_value_is_found_nowhere_but_in_the_script(cluster: Cluster) -> None:
    """Neither in stores, files and logs nor in a list of processes, while it runs."""
    script = f"{SAYS.replace('exit 3', '')} sleep 600"
    words = ["--secret", "TOKEN=HF_TOKEN", *variables(), "--", "sh", "-c", script]
    task_id = cluster.corral("run", "--detach", *words).out.strip()
    waiting = cluster.corral("run", "--detach", *words).out.strip()
    until(
        "the script has spoken",
        lambda: any("error ***" in x.text for x in cluster.client.logs(task_id)),
    )
    environment = psutil.Process(cluster.pid("manager")).environ()
    stored = asyncio.run(rows_of(environment["CORRAL_DATABASE_URL"]))
    assert not shows(stored.encode())
    assert not shows(keys_of(environment["CORRAL_REDIS_URL"]))
    assert not shows(command_lines().encode())
    for id_ in (waiting, task_id):
        assert not shows(cluster.corral("task", id_, "--json").out.encode())
        cluster.corral("cancel", id_)
    cluster.client.wait(task_id)
    files = [path for path in cluster.home.rglob("*") if path.is_file()]
    assert [p for p in files if p.name == "manager.log"]
    assert not [path for path in files if shows(contents(path))]


def contents(path: Path) -> bytes:
    """PostgreSQL and others remove files of theirs while we look."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def test_another_cluster_secret_is_told_in_clear_words(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = Cluster.start(home, ())
    set_secret(first, VALUE)
    first.stop()
    (home / "cluster.secret").write_text("ab" * 32 + "\n")
    second = Cluster.start(home, (WORKER,))
    try:
        second.serving("run_script")
        ran = second.corral("run", "--secret", "HF_TOKEN", "--", "true")
        assert ran.code == 1
        assert "set under another cluster secret" in ran.err
        set_secret(second, VALUE)
        assert second.corral("run", "--secret", "HF_TOKEN", "--", "true").code == 0
    finally:
        second.stop()
