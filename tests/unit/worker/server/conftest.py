"""Workers in this process whose servers are real processes."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from corral.worker.base import Context
from corral.worker.server import ServerWorker
from tests.unit.worker.server import small_server

SMALL = Path(small_server.__file__)
COMMAND = [
    sys.executable, "-S", str(SMALL), "--port", "{port}", "--served-model-name",
    "{name}",
]  # fmt: skip


def wait_for(what: str, check: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """The first true value of `check`: other processes have no signal to give."""
    until, pause = time.monotonic() + timeout_s, threading.Event()
    while not (value := check()):
        if time.monotonic() > until:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        pause.wait(0.02)
    return value


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_listening(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60):
            return True
    except ConnectionRefusedError:
        return False


class Runner:
    """A runner's side of contexts: what tasks emit, and how they are stopped."""

    def __init__(self) -> None:
        self.chunks: dict[str, list[str]] = {}
        self.went_on: dict[str, int] = {}
        self.on_emit: Callable[[str], None] = lambda task_id: None
        self._cancelled: set[str] = set()
        self._on_stop: dict[str, Callable[[str], None]] = {}
        self._lock = threading.Lock()

    def cancel(self, task_id: str) -> None:
        with self._lock:
            self._cancelled.add(task_id)
            call = self._on_stop.get(task_id)
        if call is not None:
            call("cancelled")

    def progress(self, task_id: str, attempt: int, fraction: float, text: str) -> None:
        raise AssertionError("nobody asked for progress")

    def log(self, text: str) -> None:
        raise AssertionError(f"nobody asked for a log: {text}")

    def is_cancelled(self, task_id: str) -> bool:
        return task_id in self._cancelled

    def on_stop(self, task_id: str, call: Callable[[str], None]) -> None:
        with self._lock:
            self._on_stop[task_id] = call
        if task_id in self._cancelled:
            call("cancelled")

    def patience(self, task_id: str, attempt: int, seconds: float) -> None:
        pass

    def emit(self, task_id: str, attempt: int, value: Any) -> None:
        self.chunks.setdefault(task_id, []).append(value["text"])
        self.on_emit(task_id)

    def go_on(self, task_id: str, attempt: int, count: int) -> None:
        self.went_on[task_id] = count

    def decode(self, text: Any) -> Any:
        raise AssertionError("there is nothing to decode")


class Desk:
    """One worker, with the test in its runner's place."""

    def __init__(self, **params: Any) -> None:
        self.runner = Runner()
        self.worker = ServerWorker(**params)
        self.worker.start()

    def context(
        self, task_id: str = "t", job_type: str = "generate", emitted: Any = None
    ) -> Context:
        return Context(
            self.runner, task_id, 1, job_type, model="counter", emitted=emitted
        )

    def ask(self, payload: Any, **more: Any) -> Any:
        self.worker.context = self.context(**more)
        return self.worker.run(payload)

    def ask_all(self, payloads: list[Any]) -> list[Any]:
        """As one order; the tasks are t0, t1 and so on."""
        self.worker.contexts = [self.context(f"t{i}") for i in range(len(payloads))]
        told = dict(self.worker.run_batch(payloads))
        return [told[place] for place in range(len(payloads))]

    @property
    def replicas(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.worker.canary()["models"]["counter"]
        return found

    def states(self) -> list[dict[str, Any]]:
        """What the servers say of themselves; none of one that is down."""
        return [state_at(r["port"]) for r in self.replicas if r["is_up"]]

    def until_up(self, count: int) -> list[dict[str, Any]]:
        def all_up() -> list[dict[str, Any]]:
            found = self.replicas
            return found if sum(r["is_up"] for r in found) == count else []

        found: list[dict[str, Any]] = wait_for(f"{count} servers are up", all_up)
        return found


def state_at(port: int) -> dict[str, Any]:
    url = f"http://127.0.0.1:{port}/test/state"
    with urllib.request.urlopen(url, timeout=60) as answer:
        told: dict[str, Any] = json.load(answer)
        return told


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    made: list[Desk] = []

    def make(*args: str, **params: Any) -> Desk:
        told = {"command": [*COMMAND, *args], "model_dir": str(tmp_path)}
        desk = Desk(**{**told, **params})
        made.append(desk)
        desk.worker.load_model("counter")
        return desk

    yield make
    for desk in made:
        desk.worker.unload_model("counter")
