"""Python processes forked from one that has their imports behind it.

`python -m corral ...` computes for half a second before it does anything, and tests
start hundreds of them. What is forked here is a process like any other, with pipes,
signals and an exit code, and its module runs as `__main__`; only the start of Python
is left out. What is about that start itself uses `subprocess`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[1]
MESSAGE_BYTES = 1 << 17


@cache
def nursery(*modules: str) -> Nursery:
    """One for each set of modules in this process of tests, started when first used."""
    made = Nursery(modules)
    atexit.register(made.close)
    return made


class Nursery:
    """The process that forks others, as tests see it."""

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

    @property
    def pid(self) -> int:
        """The parent of all that are forked."""
        return self._child.pid

    def start(
        self,
        module: str,
        *arguments: str,
        files: tuple[int, int, int],
        variables: Mapping[str, str] | None = None,
        folder: Path | None = None,
        leads_group: bool = False,
    ) -> Forked:
        """`python -m module arguments` with these files for its standard streams."""
        request = {
            "module": module,
            "arguments": arguments,
            "folder": str(folder or Path.cwd()),
            "variables": dict(os.environ if variables is None else variables),
            "leads_group": leads_group,
        }
        pid = self._ask(request, *files)
        return Forked(self, pid, os.pidfd_open(pid))

    def reap(self, pid: int) -> int:
        return self._ask({"reap": pid})

    def _ask(self, request: dict[str, Any], *files: int) -> int:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], files)
            return int(self._socket.recv(MESSAGE_BYTES))

    def close(self) -> None:
        self._socket.close()
        self._child.wait()


@dataclass
class Forked:
    """One of its processes. As with a child of ours its pid is taken until `reap`."""

    nursery: Nursery
    pid: int
    handle: int
    code: int | None = None

    def await_exit(self, timeout_s: float | None = None) -> bool:
        """Block until it has ended, and say whether it has."""
        if self.code is not None:
            return True
        return bool(select.select([self.handle], [], [], timeout_s)[0])

    def reap(self) -> int:
        """After its end: the exit code, negative for a signal."""
        if self.code is None:
            self.code = self.nursery.reap(self.pid)
            os.close(self.handle)
        return self.code


@dataclass
class Command:
    """`corral ...`, to be used as what `subprocess.Popen(text=True)` gives."""

    forked: Forked
    stdin: IO[str]
    stdout: IO[str]
    stderr: IO[str] | None
    _read: dict[str, str] = field(default_factory=dict)

    @property
    def returncode(self) -> int | None:
        return self.forked.code

    def send_signal(self, number: int) -> None:
        if self.forked.code is None:
            os.kill(self.forked.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        if not self.forked.await_exit(timeout):
            raise subprocess.TimeoutExpired("corral", timeout)
        return self.forked.reap()

    def communicate(self, text: str = "", timeout: float = 60.0) -> tuple[str, str]:
        """Say this, and hear it to its end."""
        with contextlib.suppress(BrokenPipeError):
            self.stdin.write(text)
            self.stdin.close()
        readers = [
            threading.Thread(target=self._hear, args=(name,), daemon=True)
            for name in ("stdout", "stderr")
        ]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
        return self._read.get("stdout", ""), self._read.get("stderr", "")

    def _hear(self, name: str) -> None:
        stream: IO[str] | None = getattr(self, name)
        if stream is not None:
            with stream:
                self._read[name] = stream.read()


def corral(
    *words: str,
    variables: Mapping[str, str],
    stderr: int | None = None,
    folder: Path | None = None,
) -> Command:
    """Start the command; `stderr` may be a terminal."""
    made = nursery("corral.cli.main", "corral.client", "corral.agent.life.main")
    (inlet, to_it), (from_it, outlet) = os.pipe(), os.pipe()
    heard, faults = (None, stderr) if stderr is not None else os.pipe()
    files = (inlet, outlet, faults)
    forked = made.start(
        "corral", *words, files=files, variables=variables, folder=folder
    )
    for fd in files if heard is not None else files[:2]:
        os.close(fd)
    errors = None if heard is None else os.fdopen(heard)
    return Command(forked, os.fdopen(to_it, "w"), os.fdopen(from_it), errors)


def main() -> None:
    """The nursery itself: one thread, as whoever forks should be."""
    asked = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
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
            _become(request, fds)
            return
        if request["leads_group"]:
            os.setpgid(pid, pid)
        for fd in fds:
            os.close(fd)
        asked.send(str(pid).encode())


def _become(request: dict[str, Any], fds: list[int]) -> None:
    """Do as `python -m` would; its end is the end of this process."""
    if request["leads_group"]:
        os.setpgid(0, 0)
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, closefd=False, errors="backslashreplace")
    os.environ.clear()
    os.environ.update(request["variables"])
    os.chdir(request["folder"])
    sys.path[0] = request["folder"]
    module = request["module"]
    sys.modules.pop(module, None)
    sys.argv = [module, *request["arguments"]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
