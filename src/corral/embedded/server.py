"""What `corral up` needs to know of a store it runs: one shape for both."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from corral.embedded.process import Command, last_line, launch, stop
from corral.errors import EmbeddedError

STOP_S = 10.0


class StoreServer(Protocol):
    """A store that runs as a child process of the parent."""

    @property
    def name(self) -> str: ...

    @property
    def url(self) -> str:
        """How clients reach it, password included."""

    @property
    def stop_signal(self) -> int:
        """Asks it to stop soon and cleanly."""

    @property
    def warning(self) -> str | None:
        """What the user should know about the choice that was made."""

    def prepare(self, deaths: int) -> Command:
        """Make it ready to start; `deaths` is how often in a row it just died."""

    def is_ready(self) -> bool: ...


@contextmanager
def running(server: StoreServer, log: Path, timeout_s: float = 30.0) -> Iterator[None]:
    """Run `server` for the length of a block, without supervision.

    Raises:
        EmbeddedError: when it ends or does not answer in time.
    """
    process = launch(server.prepare(0), log)
    try:
        give_up_at = time.monotonic() + timeout_s
        while not server.is_ready():
            if process.popen.poll() is not None or time.monotonic() > give_up_at:
                raise EmbeddedError(
                    f"{server.name} did not start: {last_line(process) or 'no word'}"
                )
            time.sleep(0.02)
        yield
    finally:
        stop(process, server.stop_signal, STOP_S)
