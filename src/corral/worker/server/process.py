"""One server process as its runner holds it: its start, its last words, its end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from corral.process import group as process
from corral.worker.base import Failure
from corral.worker.server import guardian

_TAIL_BYTES = 8192
_LINES = 8
_GONE_S = 30.0
_LAST_WORDS_S = 1.0
_LOOK_S = 0.02


class ServerProcess:
    """Started at once, with a keeper that ends it should this process be killed.

    `on_end` is called, from a thread, when all of it has ended. What it prints goes to
    this process's own stderr, which is the worker's log.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        grace_s: float,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.pid: int | None = None
        """The server's own; None until its keeper has started it."""
        self.end: str | None = None
        """How it ended, in words."""
        self._grace_s = grace_s
        self._on_end = on_end
        self._tail = b""
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._is_reaped = False
        self._guardian = subprocess.Popen(
            [
                sys.executable, "-I", "-S", "-B", str(Path(guardian.__file__)),
                str(grace_s), *command,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            **process.group_options(),
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        threading.Thread(target=self._wait, daemon=True).start()

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    @property
    def last_words(self) -> str:
        """The last lines it printed, in one."""
        text = self._tail.decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return " | ".join(lines[-_LINES:])

    def processes(self) -> set[int]:
        """The pids of the server and all it has started."""
        try:
            family = psutil.Process(self._guardian.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return set()
        return {member.pid for member in family}

    def stop(self) -> None:
        """Ask it to end, end it when it does not, and see that it is gone.

        Raises:
            Failure: something of it is still there.
        """
        with contextlib.suppress(OSError, ValueError):
            assert self._guardian.stdin is not None
            self._guardian.stdin.write(b"stop\n")
            self._guardian.stdin.flush()
        if not self._ended.wait(self._grace_s + _GONE_S):
            self.kill()
        self._ended.wait(_GONE_S)
        self._check_gone()

    def kill(self) -> None:
        """End all of it at once."""
        with self._lock:
            if not self._is_reaped:
                for pid in self.processes():
                    with contextlib.suppress(psutil.NoSuchProcess):
                        psutil.Process(pid).kill()
                process.kill_group(self._guardian.pid)

    def _check_gone(self) -> None:
        until = time.monotonic() + _GONE_S
        while left := _alive_in_group(self._guardian.pid):
            if time.monotonic() > until:
                text = f"processes of a server do not end: {sorted(left)}"
                raise Failure(text, kind="server_failed")
            time.sleep(_LOOK_S)

    def _wait(self) -> None:
        assert self._guardian.stdout is not None
        with self._guardian.stdout as words:
            for line in words:
                self._note(line.decode("utf-8", "replace").rstrip("\n"))
        process.await_exit(self._guardian)
        with self._lock:
            # While its pid is not given back, its group cannot be a stranger's.
            process.kill_group(self._guardian.pid)
            self._guardian.wait()
            self._is_reaped = True
        # A process that left the group may hold the pipe open for ever.
        self._reader.join(_LAST_WORDS_S)
        self.end = self.end or "was killed with its keeper"
        self._ended.set()
        with contextlib.suppress(OSError):
            assert self._guardian.stdin is not None
            self._guardian.stdin.close()
        self._on_end()

    def _note(self, word: str) -> None:
        what, _, value = word.partition(" ")
        if what == "started":
            self.pid = int(value)
        elif what == "ended":
            self.end = process.say_exit(int(value))
        elif what == "failed":
            self.end = f"cannot be started: {value}"

    def _read(self) -> None:
        assert self._guardian.stderr is not None
        # Frames of the runner go elsewhere: this is the log of its worker.
        with self._guardian.stderr as stream, contextlib.suppress(OSError):
            while data := os.read(stream.fileno(), 65536):
                self._tail = (self._tail + data)[-_TAIL_BYTES:]
                os.write(2, data)


def _alive_in_group(group: int) -> set[int]:
    """Those of a process group that run; a zombie that nobody collects does not."""
    if sys.platform == "win32":
        return set()
    try:
        os.killpg(group, 0)
    except OSError:
        return set()
    found = set()
    for member in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            is_zombie = member.status() == psutil.STATUS_ZOMBIE
            if os.getpgid(member.pid) == group and not is_zombie:
                found.add(member.pid)
    return found
