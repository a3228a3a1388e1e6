"""A whole Corral in separate processes, as a user starts it, for tests to break."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import psutil

from corral.client import Client
from corral.embedded.folder import Folder
from corral.embedded.postgres import open_postgres

ECHO = "corral.worker.builtin:EchoWorker=echo"
SLEEP = "corral.worker.builtin:SleepWorker=sleep"
ROOT = Path(__file__).resolve().parents[2]
CORRAL = (sys.executable, "-m", "corral")
# Below those that Linux and others give out by themselves.
PORTS = (12_000, 32_000)
_DICE = random.SystemRandom()


def free_port() -> int:
    """A port that nobody has, and that the system gives to no outgoing connection in
    the time until it is used.
    """
    while True:
        port = _DICE.randrange(*PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def until(what: str, check: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """The first true value of `check`; there is no signal to wait on from outside."""
    end = time.monotonic() + timeout_s
    while True:
        if value := check():
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        time.sleep(0.02)


def took_s(act: Callable[[], Any]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def typical_s(seconds: Callable[[], float], times: int = 3) -> float:
    """The middle of several: that others use this machine for a moment, or that it has
    a good one, decides nothing.
    """
    return statistics.median(seconds() for _ in range(times))


def clean_environment(**extra: str) -> dict[str, str]:
    """This process's environment without any setting of Corral."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("CORRAL_")}
    path = os.pathsep.join(filter(None, (str(ROOT), kept.get("PYTHONPATH"))))
    return {**kept, "PYTHONPATH": path, **extra}


@cache
def _empty_database() -> Folder:
    """A database as `corral up` makes it, made once by each process that runs tests."""
    made = Folder(Path(tempfile.mkdtemp(prefix="corral-empty-")))
    atexit.register(shutil.rmtree, made.home, ignore_errors=True)
    made.make()
    open_postgres(made)
    return made


def forget_database() -> None:
    """For who leaves without what `atexit` was told, as processes of xdist do."""
    if _empty_database.cache_info().currsize:
        shutil.rmtree(_empty_database().home, ignore_errors=True)
        _empty_database.cache_clear()


def _give_database(home: Path) -> None:
    """To make one is an eighth of a start, and every cluster's is the same."""
    ready, folder = _empty_database(), Folder(home)
    folder.make()
    if not folder.postgres.joinpath("data").exists():
        shutil.copytree(ready.postgres / "data", folder.postgres / "data")
        shutil.copy2(ready.secrets / "postgres.password", folder.secrets)


def _spawn(
    command: Sequence[str], env: dict[str, str], folder: Path, log: Path
) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen(
            command, env=env, stdout=file, stderr=subprocess.STDOUT, cwd=folder
        )


@dataclass
class Agent:
    """A second agent, joined as a user would."""

    name: str
    home: Path
    process: subprocess.Popen[bytes]

    def kill_all(self) -> None:
        """kill -9 of the agent and everything under it, as when a machine dies."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        os.kill(self.process.pid, signal.SIGKILL)
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        self.process.wait(60)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill_all()


@dataclass
class Cluster:
    """`corral up` in a folder of its own; `client` has its admin key."""

    home: Path
    host: str
    port: int
    process: subprocess.Popen[bytes]
    environment: dict[str, str]
    agents: list[Agent] = field(default_factory=list)

    @classmethod
    def start(
        cls,
        home: Path,
        workers: Sequence[str] = (ECHO,),
        *options: str,
        port: int | None = None,
        host: str = "127.0.0.1",
        is_port_flag: bool = True,
        is_bare: bool = False,
        **environment: str,
    ) -> Cluster:
        """`is_bare`: in an empty folder, as a user's first start is."""
        port = port or free_port()
        env = clean_environment(CORRAL_HOME=str(home), **environment)
        chosen = [part for text in workers for part in ("--worker", text)]
        if not workers:
            chosen = ["--no-agent"]
        home.mkdir(parents=True, exist_ok=True)
        if not is_bare and "CORRAL_DATABASE_URL" not in environment:
            _give_database(home)
        where = ["--port", str(port)] if is_port_flag else []
        command = [*CORRAL, "up", *where, *chosen, *options]
        process = _spawn(command, env, home, home / "up.log")
        cluster = cls(home, host, port, process, env)
        try:
            cluster.wait_ready()
        except BaseException:
            cluster.stop()
            raise
        return cluster

    @cached_property
    def client(self) -> Client:
        """The key file is there once the cluster is ready."""
        return Client(self.url, home=self.home)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def state(self) -> dict[str, Any]:
        try:
            told: dict[str, Any] = json.loads((self.home / "state.json").read_text())
        except (OSError, ValueError):
            return {}
        return told

    def wait_ready(self) -> None:
        def is_ready() -> bool:
            if self.process.poll() is not None:
                raise AssertionError((self.home / "up.log").read_text()[-4000:])
            return bool(self.state().get("ready"))

        until("corral up is ready", is_ready, 60)

    def pid(self, child: str) -> int:
        """The pid of a child of `corral up`; 0 while it is being started again."""
        pid: int = self.state().get("children", {}).get(child, {}).get("pid", 0)
        return pid

    def kill(self, child: str) -> int:
        """kill -9 one child of `corral up`; its pid."""
        pid = self.pid(child)
        os.kill(pid, signal.SIGKILL)
        return pid

    def kill_with_family(self, child: str) -> None:
        pid = self.pid(child)
        family = psutil.Process(pid).children(recursive=True)
        os.kill(pid, signal.SIGKILL)
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()

    def worker_pids(self, job_type: str) -> list[int]:
        """Supervisors that serve a job type now."""
        return [
            w.pid
            for w in self.client.workers()
            if job_type in w.job_types and w.pid and w.status in ("online", "busy")
        ]

    def runner_pids(self, supervisor: int) -> list[int]:
        return [c.pid for c in psutil.Process(supervisor).children()]

    def serving(self, job_type: str, count: int = 1) -> None:
        until(
            f"{count} worker(s) for {job_type}",
            lambda: len(self.worker_pids(job_type)) >= count,
            60,
        )

    def join(self, name: str, workers: Sequence[str], *prefix: str) -> Agent:
        """Another agent on this machine, with a home of its own."""
        token = self.client.join_token(uses=1).token
        home = self.home / f"home-{name}"
        home.mkdir(exist_ok=True)
        env = clean_environment(CORRAL_HOME=str(home), CORRAL_JOIN_TOKEN=token)
        chosen = [part for text in workers for part in ("--worker", text)]
        chosen = chosen or ["--no-worker"]
        command = [*prefix, *CORRAL, "join", self.url, "--name", name, *chosen]
        process = _spawn(command, env, home, home / "join.log")
        agent = Agent(name, home, process)
        self.agents.append(agent)
        return agent

    def corral(
        self, *arguments: str, timeout_s: float = 60.0, stdin: str | None = None
    ) -> Run:
        """One CLI call against this cluster."""
        env = {**self.environment, "CORRAL_MANAGER_URL": self.url}
        done = subprocess.run(
            [*CORRAL, *arguments],
            env=env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Run(done.returncode, done.stdout, done.stderr)

    def stop(self) -> None:
        for agent in self.agents:
            agent.stop()
        self.client.close()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str
