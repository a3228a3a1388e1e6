"""One runner process as its supervisor sees it: frames in, frames out, its end."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, cast

import msgspec

from corral.worker import process
from corral.worker.cell import Cells
from corral.worker.frame import (
    Broken,
    Done,
    End,
    Frame,
    Init,
    Log,
    Progress,
    Ready,
    decode_from_runner,
    pack,
    read_frame,
)

log = logging.getLogger(__name__)

SEND_TIMEOUT_S = 30.0
LAST_WORDS_S = 1.0
# What the manager trusted us with is not the user code's business.
_PRIVATE = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_DATABASE_URL", "_REDIS_URL")


@dataclass(frozen=True, slots=True)
class RunnerSpec:
    """Which class to run, made with which parameters."""

    worker_class: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Exited:
    """The process has ended; `current` is what it was at."""

    code: int
    current: int


class Poke:
    """Something changed outside: look again."""


Event = Done | End | Progress | Log | Exited | Poke
POKE = Poke()


def child_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not (name.startswith("CORRAL_") and name.endswith(_PRIVATE))
    }


class RunnerProcess:
    """Started at once; `on_ready` is called from the reader thread."""

    def __init__(
        self, spec: RunnerSpec, on_ready: Callable[[RunnerProcess], None]
    ) -> None:
        self.cells = Cells.create()
        self.events: SimpleQueue[Event] = SimpleQueue()
        self.fault: str | None = None
        self.trace: str | None = None
        self.is_ready = False
        self.is_dead = False
        self.was_used = False
        self._on_ready = on_ready
        self._kill_lock = threading.Lock()
        self._is_reaped = False
        self._child = subprocess.Popen(
            [
                sys.executable, "-m", "corral.worker.runner",
                self.cells.path, str(os.getpid()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(),
            **process.group_options(),
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.send(Init(spec.worker_class, spec.params))

    @property
    def pid(self) -> int:
        return self._child.pid

    def send(self, frame: Frame) -> None:
        """Pass a frame on; a runner that cannot take it is killed.

        Its end shows as `Exited` among the events, as with any other death.
        """
        assert self._child.stdin is not None
        try:
            process.write_all(self._child.stdin.fileno(), pack(frame), SEND_TIMEOUT_S)
        except (OSError, ValueError) as error:
            log.warning("runner %d cannot be written to: %s", self.pid, error)
            self.kill()

    def next_event(self, timeout_s: float) -> Event | None:
        try:
            return self.events.get(timeout=timeout_s)
        except Empty:
            return None

    def poke(self) -> None:
        self.events.put(POKE)

    def kill(self) -> None:
        """Kill the whole process group."""
        with self._kill_lock:
            if not self._is_reaped:
                process.kill_group(self.pid)
        self.cells.unlink()

    def reap(self) -> int:
        """Block until the process has ended, sweep its group; the exit code."""
        process.await_exit(self._child)
        with self._kill_lock:
            process.kill_group(self.pid)
            code = self._child.wait()
            self._is_reaped = True
        # Results that are still in the pipe count; a stray grandchild that holds
        # the pipe open does not.
        self._reader.join(LAST_WORDS_S)
        self.is_dead = True
        self.cells.unlink()
        with contextlib.suppress(OSError):
            cast(Any, self._child.stdin).close()
        self.events.put(Exited(code, self.cells.current))
        return code

    def _read(self) -> None:
        assert self._child.stdout is not None
        try:
            with self._child.stdout as stream:
                while (body := read_frame(stream)) is not None:
                    self._take(decode_from_runner(body))
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("runner %d talks nonsense: %s", self.pid, error)
        finally:
            # A runner that no longer speaks is of no use, alive or not.
            self.kill()

    def _take(self, frame: Any) -> None:
        if isinstance(frame, Ready):
            self.cells.unlink()
            self.is_ready = True
            self._on_ready(self)
        elif isinstance(frame, Broken):
            self.fault, self.trace = frame.message, frame.traceback
        else:
            self.events.put(frame)
