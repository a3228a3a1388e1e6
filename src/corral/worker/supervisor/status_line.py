"""Tells the agent, line by line, how the worker is and which attempts it holds."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Any

import msgspec

from corral.core.nodes.worker import WorkerState
from corral.worker.pool.runner_pool import RunnerPool
from corral.worker.supervisor.held_models import RunnerModels
from corral.worker.supervisor.order_desk import OrderDesk

EVERY_S = 1.0
# Under load what is held changes a thousand times a second; nobody needs each.
AT_MOST_EVERY_S = 0.1


class StatusLine:
    """Writes to `fd` from a thread of its own."""

    def __init__(
        self, fd: int, pool: RunnerPool, desk: OrderDesk, runner_models: RunnerModels
    ) -> None:
        self._fd = fd
        self._pool = pool
        self._desk = desk
        self._runner_models = runner_models
        self._touched = threading.Event()
        self._write_lock = threading.Lock()
        self._incarnation: str | None = None
        self._facts: dict[str, Any] = {}

    def start(self) -> None:
        threading.Thread(target=self._write_on, name="beacon", daemon=True).start()

    def serve_as(self, incarnation: str) -> None:
        """From now on say which incarnation it is: the manager knows it."""
        self._incarnation = incarnation

    def touch(self) -> None:
        """State or holdings have changed."""
        if not self._touched.is_set():
            self._touched.set()

    def tell(self, **facts: Any) -> None:
        """Say something else of the worker; small, and seldom changed."""
        with self._write_lock:
            self._facts = {**self._facts, **facts}
        self.touch()

    def say_last(self) -> None:
        self._write(WorkerState.STOPPED, [])

    def _write_on(self) -> None:
        while True:
            self._touched.clear()
            held = self._desk.held
            self._write(self._state(bool(held)), held)
            time.sleep(AT_MOST_EVERY_S)
            self._touched.wait(EVERY_S - AT_MOST_EVERY_S)

    def _state(self, is_holding: bool) -> WorkerState:
        if self._pool.error is not None:
            return WorkerState.ERROR
        if not self._pool.is_ready:
            return WorkerState.STARTING
        return WorkerState.BUSY if is_holding else WorkerState.READY

    def _models(self) -> dict[str, Any]:
        word = self._runner_models.word()
        return {} if word is None else {"models": word}

    def _cards(self) -> dict[str, Any]:
        cards = self._desk.cards
        return {"cards": cards} if cards else {}

    def _write(self, state: WorkerState, held: list[tuple[str, int]]) -> None:
        line: dict[str, Any] = {
            "incarnation": self._incarnation,
            "state": str(state),
            "error": self._pool.error,
            "held": held,
            "runners": self._pool.pids,
            "facts": self._facts | self._models() | self._cards(),
            "failures": self._pool.failures,
            "fault": self._pool.fault,
            "finished": self._pool.finished,
        }
        data = msgspec.json.encode(line) + b"\n"
        # The agent may be gone; the end of stdin says so, and is heeded there.
        with self._write_lock, contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._fd, data) :]
