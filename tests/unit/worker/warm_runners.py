"""Runners forked from a process that has their imports behind it.

A runner that a test starts is a process like any other: pipes, group, end and exit
code are those of a real one. Only Python's start is left out, which is 0.2 s of
computing for each of hundreds. What is about that start itself gives no `launch`.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

from corral.process.group import kill_group
from corral.worker.pool.transport import (
    PipeTransport,
    RunnerSpec,
    RunnerTransport,
    child_environment,
)
from corral.worker.shared_cell import SharedCells

ROOT = Path(__file__).parents[3]
RUNNER = "corral.worker.runner.main"
MESSAGE_BYTES = 1 << 16


def launch(spec: RunnerSpec, cells: SharedCells) -> RunnerTransport:
    """For `RunnerSpec(launch=...)`: one with all that most workers import."""
    return _launch(_nursery(RUNNER, "corral.worker.function"), spec, cells)


def launch_celery(spec: RunnerSpec, cells: SharedCells) -> RunnerTransport:
    """The same for the worker that runs Celery's tasks."""
    return _launch(_nursery(RUNNER, "corral.compat.celery"), spec, cells)


def _launch(nursery: Nursery, spec: RunnerSpec, cells: SharedCells) -> RunnerTransport:
    # Another Python cannot be forked from this one.
    return PipeTransport(spec, cells) if spec.python else nursery.start(spec, cells)


@cache
def _nursery(*modules: str) -> Nursery:
    made = Nursery(modules)
    atexit.register(made.close)
    return made


class Nursery:
    """The process that forks runners, as its tests see it."""

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
        with theirs:
            self._child = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno()), *modules],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": path},
                pass_fds=[theirs.fileno()],
            )

    def start(self, spec: RunnerSpec, cells: SharedCells) -> RunnerTransport:
        request = {
            "cells": cells.path,
            "folder": str(spec.folder or os.getcwd()),
            "variables": {**child_environment(), **spec.variables},
        }
        (inlet, ours), (outlet, theirs) = os.pipe(), os.pipe()
        pid = self._ask(request, inlet, theirs, 2)
        os.close(inlet)
        os.close(theirs)
        pipes = os.fdopen(ours, "wb"), os.fdopen(outlet, "rb")
        return Forked(self, pid, os.pidfd_open(pid), *pipes)

    def reap(self, pid: int) -> int:
        return self._ask({"reap": pid})

    def _ask(self, request: dict[str, Any], *fds: int) -> int:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], fds)
            return int(self._socket.recv(MESSAGE_BYTES))

    def close(self) -> None:
        self._socket.close()
        self._child.wait()


@dataclass(frozen=True)
class Forked:
    """One of its runners. Like a child of ours its pid is taken until `finish`."""

    nursery: Nursery
    pid: int
    handle: int
    stdin: IO[bytes]
    outlet: IO[bytes]

    @property
    def inlet(self) -> int:
        return self.stdin.fileno()

    def kill(self) -> None:
        kill_group(self.pid)

    def await_exit(self) -> None:
        select.select([self.handle], [], [])

    def finish(self) -> int:
        kill_group(self.pid)
        code = self.nursery.reap(self.pid)
        os.close(self.handle)
        with contextlib.suppress(OSError):
            self.stdin.close()
        return code


def main() -> None:
    """The nursery itself: one thread, as whoever forks should be."""
    asked = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        importlib.import_module(module)
    while True:
        raw, fds, _, _ = socket.recv_fds(asked, MESSAGE_BYTES, 3)
        if not raw:
            os._exit(0)
        request = json.loads(raw)
        if "reap" in request:
            _, status = os.waitpid(request["reap"], 0)
            asked.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        if (pid := os.fork()) == 0:
            asked.close()
            _become_runner(request, fds)
        os.setpgid(pid, pid)
        for fd in fds:
            os.close(fd)
        asked.send(str(pid).encode())


def _become_runner(request: dict[str, Any], fds: list[int]) -> None:
    """As `python -m corral.worker.runner.main CELLS PARENT` in its folder would."""
    os.setpgid(0, 0)
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(request["variables"])
    os.chdir(request["folder"])
    sys.path[0] = os.getcwd()
    sys.argv = [RUNNER, request["cells"], str(os.getppid())]
    sys.modules[RUNNER].main()


if __name__ == "__main__":
    main()
