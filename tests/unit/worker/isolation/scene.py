"""Jobs for the tests of isolation: a family to stop, and what is left of it."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil

from corral.worker.isolation import Level, RunningJob, SandboxJob, cgroup, start

# The one Python that a sandbox always shows.
PYTHON = os.path.realpath(sys.executable)


class Heard:
    """Collects output; `lines(n)` waits for the n-th line."""

    def __init__(self) -> None:
        self.stdout = b""
        self.stderr = b""
        self._more = threading.Condition()

    def __call__(self, stream: str, data: bytes) -> None:
        with self._more:
            setattr(self, stream, getattr(self, stream) + data)
            self._more.notify_all()

    def await_lines(self, count: int) -> list[str]:
        def has_them() -> bool:
            return self.stdout.count(b"\n") >= count

        with self._more:
            assert self._more.wait_for(has_them, 60), (self.stdout, self.stderr)
        return self.text.splitlines()

    @property
    def text(self) -> str:
        return self.stdout.decode()


def job(tmp_path: Path, *argv: str, **fields: Any) -> SandboxJob:
    place = tmp_path / uuid4().hex[:8]
    (place / "folder").mkdir(parents=True)
    return SandboxJob(argv, place / "folder", place / "scratch", uuid4().hex, **fields)


def shell(tmp_path: Path, script: str, **fields: Any) -> SandboxJob:
    return job(tmp_path, "sh", "-c", script, **fields)


def run(what: SandboxJob, level: Level | None = None) -> tuple[int, Heard, RunningJob]:
    heard = Heard()
    running = start(what, heard, level)
    code = running.wait(60)
    assert code is not None
    return code, heard, running


def family(token: str) -> str:
    """A shell with two children, one of them double-forked, in a session of its own
    and with an empty environment; each says `up` and then sleeps under `token`.
    """
    child = f"echo up; exec sleep {token}"
    return (
        f"(sh -c '{child}') & "
        f"(env -i setsid -f sh -c '{child}'); "
        f"echo up; sleep {token}; true"
    )


def new_token() -> str:
    """A time to sleep that no other process of this machine sleeps."""
    return f"600.{uuid4().int % 10**12}"


def sleepers(token: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if token in " ".join(process.cmdline()):
                found.append(process)
    return found


def are_gone(token: str) -> bool:
    """Whether all that sleep under `token` end: a signal that was sent is carried out
    by the kernel, and how soon is not ours.
    """
    return _ends(lambda: sleepers(token))


def has_no_groups(pid: int) -> bool:
    """Whether no control group of the caller `pid` stays; a group of the dying cannot
    be removed yet.
    """
    return _ends(lambda: groups_left(pid))


def _ends(left: Callable[[], list[Any]], timeout_s: float = 60.0) -> bool:
    end, pause = time.monotonic() + timeout_s, threading.Event()
    while left():
        if time.monotonic() > end:
            return False
        pause.wait(0.01)
    return True


def groups_left(pid: int) -> list[Path]:
    """Control groups that the caller `pid` has left."""
    return [
        folder
        for parent in cgroup.parents()
        for folder in parent.folder.glob(f"corral-{pid}-*")
    ]
