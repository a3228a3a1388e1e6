"""Runners for `RunnerSpec(launch=...)` that start at once; see tests.warm."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import IO

from corral.process.group import kill_group
from corral.worker.pool.transport import (
    PipeTransport,
    RunnerSpec,
    RunnerTransport,
    child_environment,
)
from corral.worker.shared_counters import SharedCells
from tests.warm import Forked, Nursery, nursery

RUNNER = "corral.worker.runner.main"


def launch(spec: RunnerSpec, cells: SharedCells) -> RunnerTransport:
    """With all that most workers import."""
    return _launch(nursery(RUNNER, "corral.worker.function"), spec, cells)


def launch_celery(spec: RunnerSpec, cells: SharedCells) -> RunnerTransport:
    """The same for the worker that runs Celery's tasks."""
    return _launch(nursery(RUNNER, "corral.compat.celery"), spec, cells)


def _launch(made: Nursery, spec: RunnerSpec, cells: SharedCells) -> RunnerTransport:
    if spec.python:
        # Another Python cannot be forked from this one.
        return PipeTransport(spec, cells)
    (inlet, ours), (outlet, theirs) = os.pipe(), os.pipe()
    forked = made.start(
        RUNNER,
        *(cells.path, str(made.pid)),
        files=(inlet, theirs, 2),
        variables={**child_environment(), **spec.variables},
        folder=spec.folder,
        leads_group=True,
    )
    os.close(inlet)
    os.close(theirs)
    return WarmTransport(forked, os.fdopen(ours, "wb"), os.fdopen(outlet, "rb"))


@dataclass(frozen=True)
class WarmTransport:
    """A runner in a process group of this machine, with pipes to it."""

    forked: Forked
    stdin: IO[bytes]
    outlet: IO[bytes]

    @property
    def pid(self) -> int:
        return self.forked.pid

    @property
    def inlet(self) -> int:
        return self.stdin.fileno()

    def kill(self) -> None:
        kill_group(self.pid)

    def await_exit(self) -> None:
        self.forked.await_exit()

    def finish(self) -> int:
        kill_group(self.pid)
        code = self.forked.reap()
        with contextlib.suppress(OSError):
            self.stdin.close()
        return code
