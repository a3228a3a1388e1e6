"""A Corral process that this one started, and that ends with it."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from corral.client.client import Client
from corral.errors import CorralError, Unreachable, WorkerError

STOP_S = 20.0
_LOOK_S = 0.1
_CORRAL = (sys.executable, "-m", "corral")


@dataclass
class LaunchedProcess:
    """A Corral process this one started.

    `ready` raises WorkerError when it will never be.
    """

    url: str
    log: Path
    ready: Callable[[], bool] = field(repr=False)
    connect: Callable[[], Client] = field(repr=False)
    running: subprocess.Popen[bytes] = field(repr=False)

    @cached_property
    def client(self) -> Client:
        """Made when first used: the key file is there once the process is ready."""
        return self.connect()

    @property
    def is_over(self) -> bool:
        return self.running.poll() is not None

    def is_ready(self) -> bool:
        try:
            return self.ready()
        except WorkerError:
            raise
        except CorralError:
            return False

    def last_word(self) -> str:
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").strip().splitlines()
            return lines[-1] if lines else "it said nothing"
        return "it left no log"

    def wait(self, timeout_s: float, *, show: bool) -> None:
        """Return when it is ready, with a spinner in a terminal if `show`.

        Raises:
            Unreachable: it ended, or was not ready in time.
            WorkerError: it cannot become ready; the reason is told.
        """
        ends = time.monotonic() + timeout_s
        with _spinner(f"starting {self.url}", show=show):
            try:
                while not self.is_ready():
                    if self.is_over or time.monotonic() > ends:
                        text = f"{self.url} did not come up: {self.last_word()}"
                        raise Unreachable(text, status=503)
                    time.sleep(_LOOK_S)
            except CorralError:
                self.stop(block=True)
                raise

    def stop(self, *, block: bool) -> None:
        if self.is_over:
            return
        self.running.terminate()
        if block:
            try:
                self.running.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.running.kill()


@contextlib.contextmanager
def _spinner(text: str, *, show: bool) -> Iterator[None]:
    if not (show and sys.stderr.isatty()):
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


def start(
    command: Sequence[str], log: Path, extra: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with log.open("wb") as file:
        running = subprocess.Popen(
            [*_CORRAL, *command, "--parent", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(extra or {})},
        )
    atexit.register(_end, running)
    return running


def _end(running: subprocess.Popen[bytes]) -> None:
    if running.poll() is None:
        running.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(STOP_S)
