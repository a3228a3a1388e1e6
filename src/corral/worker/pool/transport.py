"""What a runner lives in, as its supervisor holds it: here a process of this machine.

A transport carries frames and ends its runner; what the frames say it does not know.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from corral.process import group
from corral.worker.shared_counters import SharedCells

RUNNER = "corral.worker.runner.main"
# What the manager trusted us with is not the user code's business.
_PRIVATE = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_DATABASE_URL", "_REDIS_URL")


class RunnerTransport(Protocol):
    """Holds one runner from its start to its end."""

    @property
    def pid(self) -> int:
        """The process on this machine that all of the runner hangs on."""

    @property
    def inlet(self) -> int:
        """Where frames for the runner are written."""

    @property
    def outlet(self) -> IO[bytes]:
        """Where its frames are read."""

    def kill(self) -> None:
        """End the runner and all it has started, at once; it may have ended."""

    def await_exit(self) -> None:
        """Block until the runner has ended."""

    def finish(self) -> int:
        """After its end: take away what it left; the exit code, negative: a signal."""


class RunnerLaunch(Protocol):
    """Starts a runner somewhere else than in a process of this machine."""

    def __call__(self, spec: RunnerSpec, cells: SharedCells) -> RunnerTransport:
        """Start it.

        Raises:
            WorkerError: why it cannot be started.
        """


@dataclass(frozen=True, slots=True)
class RunnerSpec:
    """Which class to run, made with which parameters, and how to start its runner.

    `python`, `folder` and `variables` are of the process, or, with `launch`, of
    whatever that starts. `log_limit` is how many bytes of a task's output are kept,
    `model_room` how many models a runner holds at most.
    """

    worker_class: str
    params: dict[str, Any]
    python: str | None = None
    folder: Path | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    launch: RunnerLaunch | None = None
    log_limit: int | None = None
    model_room: int | None = None


def child_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not (name.startswith("CORRAL_") and name.endswith(_PRIVATE))
    }


def _python(spec: RunnerSpec) -> list[str]:
    """The interpreter; only code that was fetched has its own folder first.

    Any other runner starts where the agent did, and that folder may have anything in
    it: it comes last on the path, once the runner itself is loaded.
    """
    python = spec.python or sys.executable
    return [python] if spec.folder is not None else [python, "-P"]


class PipeTransport:
    """A runner in a process group of this machine, with pipes to it."""

    def __init__(self, spec: RunnerSpec, cells: SharedCells) -> None:
        self._child = subprocess.Popen(
            [*_python(spec), "-m", RUNNER, cells.path, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**child_environment(), **spec.variables},
            cwd=spec.folder,
            **group.group_options(),
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self.pid = self._child.pid
        self._stdin: IO[bytes] = self._child.stdin
        self.outlet: IO[bytes] = self._child.stdout

    @property
    def inlet(self) -> int:
        # Asked each time: once closed, its number may be someone else's.
        return self._stdin.fileno()

    def kill(self) -> None:
        group.kill_group(self.pid)

    def await_exit(self) -> None:
        group.await_exit(self._child)

    def finish(self) -> int:
        group.kill_group(self.pid)
        code = self._child.wait()
        with contextlib.suppress(OSError):
            self._stdin.close()
        return code


def open_transport(spec: RunnerSpec, cells: SharedCells) -> RunnerTransport:
    """Start a runner as its spec says.

    Raises:
        OSError: the process cannot be started.
        WorkerError: whatever else was to hold it cannot.
    """
    return spec.launch(spec, cells) if spec.launch else PipeTransport(spec, cells)
