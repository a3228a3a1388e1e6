"""A supervisor process with the test in its agent's place, and a Redis for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from corral.embedded.binaries import RedisKind, find_redis
from corral.engine.envelope import message
from tests.unit.worker.standin_manager import NODE, QUEUE, WORKER, StandInManager

ROOT = Path(__file__).parents[3]


class Broker:
    """A Redis server on a unix socket."""

    def __init__(self, folder: Path) -> None:
        binary = find_redis()
        if binary.kind is RedisKind.FAKE:
            pytest.skip("no Redis server binary here")
        self._socket = folder / "r.sock"
        self._command = [
            str(binary.program), "--port", "0", "--unixsocket", str(self._socket),
            "--save", "", "--dir", str(folder),
        ]  # fmt: skip
        self.client = redis.Redis(unix_socket_path=str(self._socket))
        self.start()

    @property
    def url(self) -> str:
        return f"redis+socket://{self._socket}?virtual_host=0"

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(self._answers)

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.ConnectionError:
            return False

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def send(self, signed: Any, order_id: str = "o-1") -> None:
        self.client.lpush(QUEUE, message(order_id, signed, QUEUE))


def until(what: Callable[[], Any], timeout_s: float = 60.0) -> None:
    """Wait for something that gives no signal."""
    end, pause = time.monotonic() + timeout_s, threading.Event()
    while not what():
        assert time.monotonic() < end, "it never came"
        pause.wait(0.01)


class Supervised:
    """The supervisor process, with the test in its agent's place."""

    def __init__(self, manager: StandInManager, broker: Broker, folder: Path) -> None:
        self.manager = manager
        self._broker = broker
        self._folder = folder
        self.lines: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self.log = folder / "log"

    def start(self, worker_class: str, **spec: Any) -> None:
        path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "corral.worker.supervisor.main"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )
        self.tell(
            {
                "worker_id": WORKER,
                "node_id": NODE,
                "manager_url": self.manager.url,
                "key": "node-key",
                "epoch": 3,
                "redis_url": self._broker.url,
                "engine": {"prefix": ""},
                "ca_file": None,
                # A busy machine must not turn other tests into one of an overrun.
                "limits": {"overrun_s": 30.0},
                "spec": {"name": "w", "worker_class": worker_class, **spec},
            }
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def tell(self, line: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for raw in self.process.stdout:
            with self._changed:
                self.lines.append(json.loads(raw))
                self._changed.notify_all()

    def wait_line(self, what: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """The next line for which `what` holds, or the last one if it does."""
        with self._changed:
            found = self._changed.wait_for(
                lambda: bool(self.lines) and what(self.lines[-1]), 60
            )
            assert found, f"{self.lines[-3:]}\n{self.log.read_text()}"
            return self.lines[-1]

    def runners(self) -> list[int]:
        line = self.wait_line(lambda line: line["runners"])
        pids: list[int] = line["runners"]
        return pids

    def wait_exit(self, timeout_s: float = 60.0) -> int:
        return self.process.wait(timeout_s)

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()
