"""Stays beside one server and ends all of it when told to, or when its runner is gone.

Run by path with `python -I -S -B`, so nothing but the standard library may be imported
here. Arguments: seconds of grace, then the server's command. It leads a process group,
which the server is in. On stdin it is told to `stop`; the end of stdin is the end of
its runner. On stdout it says `started PID`, `ended CODE` or `failed WHY`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main() -> int:
    grace_s, command = float(sys.argv[1]), sys.argv[2:]
    # Handled, not ignored: who is started here would inherit that.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    if sys.platform == "linux":
        # What the server leaves behind becomes a child of ours, and is found.
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        server = _start(command)
    except OSError as error:
        _tell(f"failed {error.strerror or error}")
        return 1
    _tell(f"started {server.pid}")
    listening = threading.Thread(target=_listen, args=(server, grace_s), daemon=True)
    listening.start()
    _tell(f"ended {server.wait()}")
    _end_all()
    return 0


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    keeper = os.getpid()
    if sys.platform != "linux":
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, stderr=2)
    prctl = ctypes.CDLL(None).prctl

    def tie() -> None:
        # A keeper that is killed cannot end anybody any more.
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != keeper:
            os._exit(1)

    # There is one thread yet, so that running Python in the child is safe.
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=2, stderr=2, preexec_fn=tie
    )


def _listen(server: subprocess.Popen[bytes], grace_s: float) -> None:
    if sys.stdin.buffer.readline().strip() == b"stop":
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(grace_s)
            return
    _end_all()


def _end_all() -> None:
    """Kill what the server has started, then this group, which the keeper is in."""
    for _ in range(8):
        strays = _family(os.getpid())
        for pid in strays:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not strays:
            break
    if sys.platform != "win32" and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _family(root: int) -> set[int]:
    """All that descend from a process and are alive; Linux only."""
    parents: dict[int, int] = {}
    with contextlib.suppress(OSError):
        for name in filter(str.isdecimal, os.listdir("/proc")):
            with contextlib.suppress(OSError, IndexError, ValueError):
                with open(
                    f"/proc/{name}/stat", encoding="utf-8", errors="replace"
                ) as f:
                    state, parent = f.read().rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    parents[int(name)] = int(parent)
    found: set[int] = set()
    fresh = {root}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found


def _prctl(what: int, value: int) -> None:
    ctypes.CDLL(None).prctl(what, value, 0, 0, 0)


def _tell(word: str) -> None:
    with contextlib.suppress(OSError):  # the runner is gone: nobody to tell
        os.write(1, word.encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
