"""`corral exec` on a real cluster: beside scripts in a sandbox and in a container."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from corral.wire.output import ExecEnd
from tests.acceptance.cluster import CORRAL, SLEEP, Cluster, took_s, typical_s, until
from tests.containers import SHELL, engine, podman_files, settings

__all__ = ["engine", "podman_files", "settings"]
pytestmark = pytest.mark.timeout(240)

WORKER = "corral.worker.script.worker:RunScriptWorker=run_script"
IMAGE = ("--image", SHELL)
PLACES = pytest.mark.parametrize("where", [(), IMAGE], ids=["sandbox", "image"])
MARK = "98543"


@pytest.fixture(scope="module")
def cluster(
    podman_files: Path, engine: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    started = Cluster.start(
        tmp_path_factory.mktemp("exec"),
        [WORKER, SLEEP],
        CONTAINERS_CONF=str(podman_files / "containers.conf"),
        CONTAINERS_STORAGE_CONF=str(podman_files / "storage.conf"),
    )
    try:
        started.serving("run_script")
        started.serving("sleep")
        yield started
    finally:
        started.stop()


@pytest.fixture(autouse=True)
def leave_nothing(cluster: Cluster) -> Iterator[None]:
    """A test that fails leaves no script in the way of the next."""
    yield
    cluster.client.cancel_tasks(status="queued,running")


def start(cluster: Cluster, *where: str, script: str = "sleep 600") -> str:
    """A script that has said that it runs; its task."""
    words = ["--env", "COLOUR=green", "--", "sh", "-c", f"echo up; {script}"]
    task_id = cluster.corral("run", "--detach", *where, *words).out.strip()
    until("the script runs", lambda: list(cluster.client.logs(task_id)))
    return task_id


def alive() -> list[str]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or ()
        if list(line) == ["sleep", MARK]:
            found.append(" ".join(line))
    return found


def follow(cluster: Cluster, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*CORRAL, "exec", *words],
        env={**cluster.environment, "CORRAL_MANAGER_URL": cluster.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@PLACES
def test_a_command_sees_what_the_script_sees_and_its_exit_code_comes_back(
    cluster: Cluster, where: tuple[str, ...]
) -> None:
    task_id = start(cluster, *where, script="echo here > /tmp/note; sleep 600")
    look = 'cat /tmp/note; echo "$COLOUR" >&2; exit 7'
    ran = cluster.corral("exec", task_id, "--", "sh", "-c", look)
    assert (ran.code, ran.out, ran.err) == (7, "here\n", "green\n")
    cluster.client.cancel(task_id)
    cluster.client.wait(task_id)


@PLACES
def test_output_comes_while_the_command_runs_and_ctrl_c_ends_it(
    cluster: Cluster, where: tuple[str, ...]
) -> None:
    task_id = start(cluster, *where)
    running = follow(cluster, task_id, "--", "sh", "-c", f"echo now; sleep {MARK}")
    assert running.stdout is not None
    assert running.stdout.readline() == "now\n"
    assert running.poll() is None
    until("it sleeps", alive)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    assert running.returncode == 130
    until("the command has ended", lambda: not alive())
    assert cluster.client.get_task(task_id).status == "running"
    cluster.client.cancel(task_id)
    cluster.client.wait(task_id)


def test_a_command_starts_within_a_second(cluster: Cluster) -> None:
    task_id = start(cluster)

    def say_hi() -> None:
        run = cluster.client.start_exec(task_id, ["echo", "hi"])
        *said, end = cluster.client.exec_output(run)
        assert [x.data for x in said if not isinstance(x, ExecEnd)] == [b"hi\n"]
        assert end == ExecEnd(exit_code=0)

    assert typical_s(lambda: took_s(say_hi), 5) < 1.0
    cluster.client.cancel(task_id)
    cluster.client.wait(task_id)


def test_every_byte_of_a_large_output_comes_in_order(cluster: Cluster) -> None:
    task_id = start(cluster)
    command = ["sh", "-c", "seq 1 400000; printf '\\377'"]
    run = cluster.client.start_exec(task_id, command)
    *said, end = cluster.client.exec_output(run)
    data = b"".join(x.data for x in said if not isinstance(x, ExecEnd))
    assert data == b"".join(b"%d\n" % n for n in range(1, 400_001)) + b"\xff"
    assert end == ExecEnd(exit_code=0)
    cluster.client.cancel(task_id)
    cluster.client.wait(task_id)


def test_what_takes_no_command_says_so(cluster: Cluster) -> None:
    task_id = start(cluster)
    ran = cluster.corral("exec", task_id, "--", "no-such-program")
    assert (ran.code, ran.err) == (125, "Error: command not found: no-such-program\n")
    cluster.client.cancel(task_id)
    cluster.client.wait(task_id)
    ran = cluster.corral("exec", task_id, "--", "true")
    assert ran.code == 125
    assert "has already ended as cancelled" in ran.err
    other = cluster.client.submit("sleep", {"seconds": 60}).task_id
    until("it runs", lambda: cluster.client.get_task(other).status == "running")
    ran = cluster.corral("exec", other, "--", "true")
    assert ran.code == 125
    assert "is no script but a task of type 'sleep'" in ran.err
    cluster.client.cancel(other)


@PLACES
def test_a_command_ends_with_its_job(cluster: Cluster, where: tuple[str, ...]) -> None:
    task_id = start(cluster, *where)
    running = follow(cluster, task_id, "--", "sh", "-c", f"echo now; sleep {MARK}")
    assert running.stdout is not None
    assert running.stdout.readline() == "now\n"
    cluster.client.cancel(task_id)
    _, err = running.communicate(timeout=60)
    assert running.returncode not in (0, 130)
    assert "the job has ended, and the command with it" in err, running.returncode
    until("the command has ended", lambda: not alive())


def test_a_manager_that_starts_again_ends_commands_and_says_so(
    cluster: Cluster,
) -> None:
    task_id = start(cluster)
    running = follow(cluster, task_id, "--", "sh", "-c", f"echo now; sleep {MARK}")
    assert running.stdout is not None
    assert running.stdout.readline() == "now\n"
    cluster.kill("manager")
    _, err = running.communicate(timeout=60)
    assert running.returncode == 125
    assert "ended when Corral was started again" in err
    until("the command has ended", lambda: not alive())
    assert cluster.client.get_task(task_id).status == "running"
    assert cluster.corral("exec", task_id, "--", "true").code == 0
    cluster.client.cancel(task_id)
    cluster.client.wait(task_id)
