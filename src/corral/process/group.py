"""The seam for what differs between POSIX and Windows about processes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

PR_SET_PDEATHSIG = 1


def group_options() -> dict[str, Any]:
    """What to tell Popen so that the child leads a process group of its own."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"process_group": 0}


def kill_group(pid: int) -> None:
    """End the group that `pid` leads, at once and for sure."""
    if sys.platform == "win32":
        command = ["taskkill", "/T", "/F", "/PID", str(pid)]
        subprocess.run(command, check=False, capture_output=True)
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def end_own_group() -> None:
    """Leave at once and take every process of this group along."""
    if sys.platform != "win32" and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def await_exit(child: subprocess.Popen[bytes]) -> None:
    """Block until the child has ended, but leave its pid taken where possible.

    While the pid is not given back, its group can be killed without the risk of
    hitting a stranger that was given the same number.
    """
    if sys.platform == "win32" or not hasattr(os, "waitid"):
        child.wait()
        return
    with contextlib.suppress(ChildProcessError):  # someone else has collected it
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


def die_with_parent(parent: int, *, gently: bool = False) -> None:
    """Ask to be killed, or gently to be stopped, when `parent` is gone; Linux only.

    Elsewhere, and for a parent that is already gone, the end of a runner's frame pipe
    does the same a moment later. The kernel looks at the thread that started this
    process: see `Restarts.keep`.
    """
    if sys.platform != "linux":
        return
    number = signal.SIGTERM if gently else signal.SIGKILL
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() == parent:
        return
    # It ended before the wish was heard.
    if not gently:
        end_own_group()
    os.kill(os.getpid(), number)


def say_exit(code: int) -> str:
    """An exit status in words."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"was killed by signal {-code} ({name})"


def write_all(fd: int, data: bytes, timeout_s: float) -> None:
    """Write everything, or raise when the reader takes none for too long.

    Raises:
        TimeoutError: the pipe stayed full for `timeout_s`.
        OSError: the reader is gone.
    """
    view, deadline = memoryview(data), time.monotonic() + timeout_s
    if sys.platform == "win32":
        while view:  # a pipe there cannot be polled: no time limit
            view = view[os.write(fd, view) :]
        return
    os.set_blocking(fd, False)
    while view:
        try:
            view = view[os.write(fd, view) :]
            continue
        except BlockingIOError:
            left = deadline - time.monotonic()
        poller = select.poll()
        poller.register(fd, select.POLLOUT)
        if left <= 0 or not poller.poll(left * 1000):
            raise TimeoutError("the runner does not read what it is sent")
