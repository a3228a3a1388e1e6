"""`corral up` and `corral down`: the parent, with real stores and stand-ins beside."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from corral.embedded.folder import Folder, FolderState, load_state
from corral.process.spawn import is_alive
from tests.acceptance.cluster import free_port

HERE = Path(__file__).parent
ENV = {**os.environ, "PYTHONPATH": str(HERE.parent.parent / "src")}
PARTS = ["postgres", "redis", "manager", "agent"]


class Parent:
    """A `corral up` in the foreground."""

    def __init__(self, home: Path, port: int, *words: str, **env: str) -> None:
        self.folder = Folder(home)
        self.said = home.parent / f"{home.name}.said"
        command = [sys.executable, str(HERE / "standin_up.py"), str(home), str(port)]
        with self.said.open("ab") as file:
            self.popen = subprocess.Popen(
                [*command, *words],
                stdout=file,
                stderr=file,
                env={**ENV, **env},
                start_new_session=True,
            )

    @property
    def state(self) -> FolderState:
        state = load_state(self.folder)
        assert state is not None
        return state

    def pids(self) -> dict[str, int]:
        return {name: known.pid for name, known in self.state.children.items()}

    def await_ready(self) -> Parent:
        wait_until(lambda: self.popen.poll() is not None or self.is_ready())
        assert self.popen.poll() is None, self.said.read_text()
        return self

    def is_ready(self) -> bool:
        state = load_state(self.folder)
        return state is not None and state.ready and state.parent.pid == self.popen.pid

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        return self.popen.wait(60)


def wait_until(claim: Callable[[], bool], timeout_s: float = 60.0) -> None:
    pause, give_up_at = threading.Event(), time.monotonic() + timeout_s
    while not claim():
        assert time.monotonic() < give_up_at
        pause.wait(0.03)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parent]:
    """One running cluster for every test that leaves it running."""
    parent = Parent(tmp_path_factory.mktemp("up") / "home", free_port())
    try:
        yield parent.await_ready()
    finally:
        parent.stop()


def ended(pids: dict[str, int]) -> bool:
    """Is none of them left? A zombie waits for its parent only."""
    return not any(map(_lives, pids.values()))


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def corral(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "corral", *words],
        env=ENV,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_all_parts_run_and_the_banner_shows_the_way(shared: Parent) -> None:
    assert list(shared.state.children) == PARTS
    assert all(is_alive(known) for known in shared.state.children.values())
    said = shared.said.read_text()
    assert shared.state.url in said
    assert str(shared.folder.admin_key) in said
    assert "corral run echo" in said
    assert "corral_test_key" not in said


def test_manager_is_told_by_environment_and_no_secret_is_an_argument(
    shared: Parent,
) -> None:
    told = json.loads((shared.folder.home / "manager.env").read_text())
    assert told["CORRAL_DATABASE_URL"].startswith("postgresql://corral:")
    assert told["CORRAL_REDIS_URL"].startswith("redis+socket://:")
    secrets = [shared.folder.secret("postgres"), shared.folder.secret("redis")]
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        assert not [secret for secret in [*secrets, "a-token"] if secret in line]


def test_agent_knows_nothing_of_the_stores(shared: Parent) -> None:
    starts = (shared.folder.home / "agent.starts").read_text().splitlines()
    told = json.loads(starts[0])
    assert told["CORRAL_MANAGER_URL"] == shared.state.url
    assert json.loads(told["CORRAL_AGENT_WORKERS"])
    assert not {"CORRAL_DATABASE_URL", "CORRAL_REDIS_URL"} & told.keys()


@pytest.mark.parametrize("name", PARTS)
def test_killed_part_comes_back(shared: Parent, name: str) -> None:
    before = shared.pids()
    os.kill(before[name], signal.SIGKILL)
    wait_until(lambda: shared.pids().get(name, before[name]) != before[name])
    wait_until(lambda: f"{name} runs again" in shared.said.read_text())
    others = {n: p for n, p in shared.pids().items() if n != name}
    assert others == {n: p for n, p in before.items() if n != name}


def test_agent_asks_for_a_token_only_while_it_has_no_credential(
    shared: Parent,
) -> None:
    starts = (shared.folder.home / "agent.starts").read_text().splitlines()
    assert json.loads(starts[0])["CORRAL_JOIN_TOKEN"] == "a-token"


def test_second_start_on_the_same_folder_is_refused(shared: Parent) -> None:
    second = Parent(shared.folder.home, free_port())
    assert second.popen.wait(60) == 1
    line = shared.said.read_text().splitlines()[-1]
    assert line.startswith("Error: Corral already runs on ")
    assert f"pid {shared.popen.pid}" in line
    assert shared.is_ready()


def test_port_in_use_is_one_line_and_starts_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        parent = Parent(tmp_path / "home", port)
        assert parent.popen.wait(60) == 1
    assert parent.said.read_text().count("\n") == 1
    assert f"port {port} on 127.0.0.1 is in use" in parent.said.read_text()
    assert not (tmp_path / "home" / "postgres" / "data").exists()


def test_killed_parent_leaves_nothing_and_its_folder_starts_again(
    tmp_path: Path,
) -> None:
    first = Parent(tmp_path / "home", free_port()).await_ready()
    pids = first.pids()
    first.popen.kill()
    first.popen.wait()
    second = Parent(tmp_path / "home", free_port())
    try:
        second.await_ready()
        wait_until(lambda: ended(pids))
        assert second.stop(signal.SIGINT) == 0
    finally:
        second.stop()


def test_down_stops_everything_in_a_few_seconds(tmp_path: Path) -> None:
    parent = Parent(tmp_path / "home", free_port()).await_ready()
    pids = parent.pids()
    began = time.monotonic()
    waiter = threading.Thread(target=parent.popen.wait)
    waiter.start()
    done = corral("down", "--home", str(parent.folder.home))
    waiter.join()
    assert (done.returncode, done.stdout) == (0, "stopped\n")
    assert time.monotonic() - began < 30
    wait_until(lambda: ended(pids))
    assert load_state(parent.folder) is None
    order = (parent.folder.logs / "postgres.log").read_text()
    assert "database system is shut down" in order


def test_down_with_nothing_running_is_one_line(tmp_path: Path) -> None:
    done = corral("down", "--home", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == f"Error: nothing runs on {tmp_path}\n"


@pytest.mark.parametrize("way", ["up --drain", "down --drain"])
def test_drain_waits_until_no_task_runs(tmp_path: Path, way: str) -> None:
    words = ["drain"] if way.startswith("up") else []
    home = tmp_path / "home"
    external = {"CORRAL_REDIS_URL": "redis://127.0.0.1:1"}
    parent = Parent(home, free_port(), *words, **external).await_ready()
    if words:
        assert parent.stop() == 0
    else:
        waiter = threading.Thread(target=parent.popen.wait)
        waiter.start()
        assert corral("down", "--drain", "--home", str(home)).returncode == 0
        waiter.join()
    assert (home / "drained").exists()


@pytest.mark.parametrize(("failure", "code"), [("3", 3), ("1", 1)])
def test_manager_that_cannot_start_ends_it_with_its_reason(
    tmp_path: Path, failure: str, code: int
) -> None:
    stores = {
        "CORRAL_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
        "CORRAL_REDIS_URL": "redis://127.0.0.1:1",
    }
    home = tmp_path / "home"
    parent = Parent(home, free_port(), STANDIN_FAILURE=failure, **stores)
    assert parent.popen.wait(60) == code
    said = parent.said.read_text()
    assert said.startswith("Error: the manager did not start: the database did not")
    assert said.count("\n") == 1
    assert not (home / "postgres" / "data").exists()


def test_stores_that_are_given_are_not_started(tmp_path: Path) -> None:
    stores = {
        "CORRAL_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
        "CORRAL_REDIS_URL": "redis://127.0.0.1:1",
    }
    parent = Parent(tmp_path / "home", free_port(), "verbose", **stores).await_ready()
    assert list(parent.state.children) == ["manager", "agent"]
    assert parent.stop() == 0
    assert "manager | " in parent.said.read_text()


def test_worker_that_cannot_be_read_is_a_usage_error(tmp_path: Path) -> None:
    done = corral("up", "--home", str(tmp_path / "home"), "--worker", "no class!")
    assert done.returncode == 2
    assert "--worker" in done.stderr
    assert not (tmp_path / "home").exists()


@pytest.mark.spec("C64")
def test_listening_beyond_this_machine_in_plain_text_is_refused(
    tmp_path: Path,
) -> None:
    done = corral("up", "--home", str(tmp_path / "home"), "--host", "0.0.0.0")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "CORRAL_ALLOW_PLAINTEXT" in done.stderr
    assert not (tmp_path / "home").exists()
