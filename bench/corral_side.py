"""A Corral cluster for measuring: started in a folder of its own, loaded, stopped.

It uses what users have: the `corral` command and the client.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.meter import BenchError, Kinds, Usage, family, measure
from corral import Client

WORKER = "corral.worker.builtin:EchoWorker=echo"
START_S, STOP_S, WAIT_S = 120.0, 30.0, 120.0
CONCURRENT = 32


@dataclass(frozen=True, slots=True)
class CorralSide:
    """A running cluster and a client of it."""

    home: Path
    url: str
    client: Client

    def bulk(self, tasks: int) -> Usage:
        """Submit `tasks` at once and read every result."""
        work = [("echo", {"message": number}) for number in range(tasks)]
        said: list[object] = []

        def submit_and_read() -> None:
            ids = self.client.submit_many(work)
            said.extend(t.result for t in self.client.wait_many(ids, WAIT_S))

        usage = measure(submit_and_read, self.processes)
        if said != [{"echoed": number} for number in range(tasks)]:
            raise BenchError("Corral: some results are not what was sent")
        return usage

    def round_trips_s(self, count: int) -> list[float]:
        """One task at a time: from before the submit until its result is here."""
        took = []
        for number in range(count):
            begun = time.perf_counter()
            said = self.client.run("echo", {"message": number}, wait_timeout=WAIT_S)
            took.append(time.perf_counter() - begun)
            if said != {"echoed": number}:
                raise BenchError("Corral: a result is not what was sent")
        return took

    def concurrent(self, tasks: int) -> Usage:
        """The same from many clients at a time, each with one task in flight."""
        numbers = iter(range(tasks))
        turn = threading.Lock()

        def call(client: Client) -> None:
            while True:
                with turn:
                    number = next(numbers, None)
                if number is None:
                    return
                client.run("echo", {"message": number}, wait_timeout=WAIT_S)

        # A client keeps its connections in a list it walks for every call: 32 of
        # their own, as 32 programs would have, measure the cluster and not that.
        with ExitStack() as stack, ThreadPoolExecutor(CONCURRENT) as threads:
            opened = [Client(self.url, home=self.home) for _ in range(CONCURRENT)]
            clients = [stack.enter_context(client) for client in opened]
            return measure(lambda: list(threads.map(call, clients)), self.processes)

    def processes(self) -> Kinds:
        """The cluster's processes by kind, as they are now."""
        pids = self.pids()
        agent = psutil.Process(pids["agent"])
        workers = [p for child in agent.children() for p in family(child.pid)]
        return {
            "manager": family(pids["manager"]),
            "worker": workers,
            "agent": [agent],
            "postgres": family(pids["postgres"]),
            "redis": family(pids["redis"]),
            "parent": [psutil.Process(_state(self.home)["parent"]["pid"])],
        }

    def pids(self) -> dict[str, int]:
        """What `corral up` has started, by name; without those it is restarting."""
        state = _state(self.home)
        if not state:
            raise BenchError("Corral: it is gone")
        return {name: mark["pid"] for name, mark in state["children"].items()}


@contextmanager
def corral_side(home: Path, workers: int, **settings: str) -> Iterator[CorralSide]:
    """A cluster of one manager and one agent with `workers` echo workers.

    For no workers there is no agent either. Settings are variables of theirs.
    """
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    given = [word for _ in range(workers) for word in ("--worker", WORKER)]
    command = [sys.executable, "-m", "corral", "up", "--home", str(home)]
    with (home.parent / "corral.log").open("wb") as log:
        parent = subprocess.Popen(
            [*command, "--port", str(port), *(given or ["--no-agent"])],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_environment() | settings,
            start_new_session=True,
        )
    try:
        _await_ready(parent, home, Path(log.name))
        with Client(url, home=home) as client:
            _await_workers(client, workers)
            yield CorralSide(home, url, client)
    finally:
        _stop(parent)


def _state(home: Path) -> dict[str, Any]:
    """What `corral up` says of itself; nothing while it is not there."""
    try:
        told: dict[str, Any] = json.loads((home / "state.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return told


def _environment() -> dict[str, str]:
    """No setting of the user's reaches a cluster that is measured."""
    return {k: v for k, v in os.environ.items() if not k.startswith("CORRAL_")}


def _await_ready(parent: subprocess.Popen[bytes], home: Path, log: Path) -> None:
    give_up_at = time.monotonic() + START_S
    while not _state(home).get("ready"):
        if parent.poll() is not None or time.monotonic() > give_up_at:
            said = log.read_text(errors="replace").strip().splitlines()
            raise BenchError(f"Corral did not start: {said[-1] if said else '?'}")
        time.sleep(0.05)


def _await_workers(client: Client, count: int) -> None:
    give_up_at = time.monotonic() + START_S
    while len(client.workers(status="online")) < count:
        if time.monotonic() > give_up_at:
            raise BenchError(f"Corral: not all {count} workers came up")
        time.sleep(0.05)


def _stop(parent: subprocess.Popen[bytes]) -> None:
    members = family(parent.pid)
    parent.terminate()
    with suppress(subprocess.TimeoutExpired):
        parent.wait(STOP_S)
    for process in members:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    parent.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
