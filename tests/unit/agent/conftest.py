"""A stand-in manager, agents in threads, and a real Redis for the agent's tests."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from corral.agent.config import AgentConfig
from corral.agent.life.main import Agent
from corral.agent.restart_policy import ChildPolicy
from corral.embedded.binaries import find_redis
from corral.errors import CorralError
from tests.acceptance.cluster import free_port
from tests.unit.agent.standin import TOKEN, StandInManager

# It needs nothing that is installed, and starts in half the time without.
STANDIN = Path(__file__).with_name("standin_supervisor.py")
SUPERVISOR = (sys.executable, "-I", "-S", str(STANDIN))
QUICK = ChildPolicy(first_delay_s=0.05, longest_delay_s=0.4, stop_grace_s=30.0)


def wait_until(claim: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """For facts that ring no bell: files and processes."""
    deadline = time.monotonic() + timeout_s
    while not (value := claim()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)
    return value


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@dataclass
class Book:
    """What a stand-in supervisor wrote down."""

    folder: Path

    def rows(self, worker_id: str = "w1") -> list[dict[str, Any]]:
        path = self.folder / f"{worker_id}.jsonl"
        if not path.exists():
            return []
        whole = path.read_text(encoding="utf-8").rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def find(self, key: str, worker_id: str = "w1") -> list[Any]:
        return [row[key] for row in self.rows(worker_id) if key in row]

    def worker(self, worker_id: str = "w1", **params: Any) -> dict[str, Any]:
        return {
            "worker_id": worker_id,
            "name": f"echo-{worker_id}",
            "worker_class": "corral:EchoWorker",
            "job_types": ["echo"],
            "params": {"folder": str(self.folder), **params},
            "concurrency": 1,
        }


@pytest.fixture
def book(tmp_path: Path) -> Book:
    folder = tmp_path / "book"
    folder.mkdir()
    return Book(folder)


@pytest.fixture
def manager() -> Iterator[StandInManager]:
    standin = StandInManager()
    standin.start()
    yield standin
    standin.stop()


@pytest.fixture
def config(tmp_path: Path, manager: StandInManager) -> AgentConfig:
    return AgentConfig(
        manager_url=manager.url,
        home=tmp_path / "home",
        name="n1",
        join_token=TOKEN,
        child=QUICK,
        tick_s=0.1,
        supervisor_argv=SUPERVISOR,
    )


@dataclass
class Running:
    """An agent in a thread; what `run` raised is kept."""

    agent: Agent
    error: CorralError | None = None

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.agent.run()
        except CorralError as error:
            self.error = error

    def stop(self, timeout_s: float = 60.0) -> None:
        self.agent.stop()
        self.join(timeout_s)

    def join(self, timeout_s: float = 60.0) -> None:
        self.thread.join(timeout_s)
        assert not self.thread.is_alive(), "the agent did not end"


@pytest.fixture
def start() -> Iterator[Callable[[AgentConfig], Running]]:
    started: list[Running] = []

    def begin(config: AgentConfig) -> Running:
        started.append(Running(Agent(config)))
        return started[-1]

    yield begin
    for running in started:
        running.agent.stop()
        running.agent.stop()
        running.join()


@dataclass(frozen=True)
class RedisServer:
    """`user` may do all; the default user has the password `root`."""

    path: Path
    port: int
    user: str = "node-1"
    password: str = "p@ss/word:1"


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    folder = Path(tempfile.mkdtemp(prefix="corral-test-"))
    server = RedisServer(folder / "r.sock", free_port())
    child = subprocess.Popen(
        [
            _redis_binary(),
            *("--port", str(server.port), "--bind", "127.0.0.1"),
            *("--unixsocket", str(server.path), "--dir", str(folder)),
            *("--save", "", "--requirepass", "root", "--logfile", "redis.log"),
        ]
    )
    try:
        with redis.Redis(unix_socket_path=str(server.path), password="root") as root:
            wait_until(lambda: _pings(root))
            root.acl_setuser(
                server.user,
                enabled=True,
                passwords=[f"+{server.password}"],
                categories=["+@all"],
                keys=["*"],
                channels=["*"],
            )
        yield server
    finally:
        child.terminate()
        child.wait(60)
        shutil.rmtree(folder)


def _pings(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def _redis_binary() -> str:
    found = find_redis()
    if found.program is None:
        pytest.skip("no Redis on this machine")
    return str(found.program)
