"""Starts the runner of code that a user sent in a sandbox, and is its transport.

Such code runs in the place of its sender and nobody else's: it sees its own folder,
its Python and the system, as a script does.
"""

from __future__ import annotations

import contextlib
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from corral.worker import isolation
from corral.worker.environments.cache import Cache
from corral.worker.environments.prepare import Prepared
from corral.worker.pool.transport import RunnerSpec
from corral.worker.shared_counters import SharedCells

# In the place of a parent it could not see: it ends with its pipes.
NO_PARENT = "-"


class SandboxLaunch:
    """How to start runners of one bundle in sandboxes: `RunnerSpec(launch=...)`."""

    def __init__(
        self,
        cache: Cache,
        made: Prepared,
        mark: str,
        level: isolation.Level,
        hidden: tuple[Path, ...],
        reach: isolation.NetworkPolicy,
    ) -> None:
        self._reach = reach
        self._hidden = (cache.folder, *hidden)
        self._cache = cache
        self._made = made
        self._mark = mark
        self._level = level

    def __call__(self, spec: RunnerSpec, cells: SharedCells) -> SandboxTransport:
        """Start one runner.

        Raises:
            WorkerError: why it cannot be started.
        """
        with ExitStack() as held:
            scratch = held.enter_context(self._cache.scratch())
            job = isolation.SandboxJob(
                argv=(
                    *(spec.python or sys.executable, "-m"),
                    *("corral.worker.runner.main", cells.path, NO_PARENT),
                ),
                folder=self._made.folder,
                scratch=scratch,
                mark=f"{self._mark}.{scratch.name}",
                environment=spec.variables,
                readable=self._made.reads,
                writable=(self._made.root, cells.file),
                hidden=self._hidden,
                # Those of its worker; which of them are free is the worker's care.
                gpus=None,
                network=self._reach.choose(isolation.Network.OWN),
                reach=self._reach,
            )
            (inlet, ours), (outlet, theirs) = os.pipe(), os.pipe()
            held.callback(os.close, ours)
            stream = held.enter_context(os.fdopen(outlet, "rb"))
            running = isolation.start(
                job, _on_output, self._level, pipes=(inlet, theirs)
            )
            return SandboxTransport(running, ours, stream, held.pop_all())


class SandboxTransport:
    """A runner in a sandbox of this machine, with pipes to it."""

    def __init__(
        self,
        running: isolation.RunningJob,
        inlet: int,
        outlet: IO[bytes],
        held: ExitStack,
    ) -> None:
        self.pid = running.pid
        self.inlet = inlet
        self.outlet = outlet
        self._running = running
        self._held = held

    def kill(self) -> None:
        self._running.kill()

    def await_exit(self) -> None:
        self._running.wait()

    def finish(self) -> int:
        code = self._running.wait() or 0
        self._held.close()
        return 128 - code if code > 128 else code


def _on_output(_stream: str, data: bytes) -> None:
    # As with any runner, what is printed beside tasks is for the worker's log.
    with contextlib.suppress(OSError):
        os.write(2, data)
