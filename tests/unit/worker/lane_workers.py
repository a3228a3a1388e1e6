"""Worker classes that share one runner between several orders."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from corral.worker import Worker
from corral.worker.runner.current_task import progress

PATIENCE_S = 60.0


class Shared(Worker):
    """Does what a payload says; `meet` waits until so many are there at a time."""

    shares_runner = True
    stop_grace_s = PATIENCE_S

    def start(self) -> None:
        self.gate = threading.Barrier(int(self.params.get("meet", 1)))
        self.opened = threading.Event()
        self.loads: list[str] = []

    def load_model(self, name: str) -> None:
        self.loads.append(f"+{name}")

    def unload_model(self, name: str) -> None:
        self.loads.append(f"-{name}")

    def run(self, payload: Any) -> Any:
        context = self.context
        said: Any = getattr(self, f"do_{payload['do']}")(payload)
        assert self.context is context
        return {"task": context.task_id, "pid": os.getpid(), "said": said}

    def do_meet(self, payload: Any) -> int:
        sys.stdout.write(f"{self.context.task_id} goes\n")
        progress(1, 2, self.context.task_id)
        self.context.emit(self.context.task_id)
        self.gate.wait(PATIENCE_S)
        sys.stdout.write(f"{self.context.task_id} comes\n")
        return self.lanes

    def do_open(self, payload: Any) -> None:
        self.opened.set()

    def do_await_open(self, payload: Any) -> bool:
        self.context.emit("here")
        return self.opened.wait(PATIENCE_S)

    def do_await_cancel(self, payload: Any) -> bool:
        asked = threading.Event()
        self.context.on_stop(lambda reason: asked.set())
        self.context.emit("here")
        return asked.wait(PATIENCE_S) and self.context.cancelled

    def do_compute(self, payload: Any) -> bool:
        done: SimpleQueue[str] = SimpleQueue()
        self.in_main(lambda: done.put(threading.current_thread().name))
        return done.get(timeout=PATIENCE_S) == threading.main_thread().name

    def do_list(self, payload: Any) -> list[str]:
        return list(self.loads)

    def do_die(self, payload: Any) -> None:
        os._exit(7)


class Hasty(Shared):
    """Gives nobody time to stop."""

    stop_grace_s = 0.0


class Gathering(Shared):
    def run_batch(self, payloads: list[Any]) -> list[Any]:
        tasks = [context.task_id for context in self.contexts]
        self.gate.wait(PATIENCE_S)
        assert tasks == [context.task_id for context in self.contexts]
        return list(tasks)


class Yielding(Worker):
    """Its batches are done one after the other, the last first; `stop` ends them, and
    `gate` is a pipe to wait for.
    """

    def run_batch(self, payloads: list[Any]) -> Iterator[tuple[int, Any]]:
        for place, payload in reversed(list(enumerate(payloads))):
            sys.stdout.write(f"done with {place}\n")
            if payload.get("stop"):
                raise ValueError("no more")
            if gate := payload.get("gate"):
                Path(gate).read_bytes()
            yield place, len(payloads)
