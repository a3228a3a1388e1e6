"""The processes of a container as this machine sees them, where it does.

Engines signal a container's first process alone. Elsewhere than on Linux, or with an
engine in a virtual machine, there is nothing to see, and that is what they do here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

PROC = Path("/proc")
_MONITOR = "conmon"
_END_S = 10.0


class ContainerProcesses:
    """Everything in one container, by the container's full id."""

    def __init__(self, id_: str) -> None:
        self._id = id_

    def has(self, pid: int) -> bool:
        # Both engines name a container's control group after it.
        with contextlib.suppress(OSError):
            return self._id in PROC.joinpath(str(pid), "cgroup").read_text()
        return False

    def pids(self) -> set[int]:
        if sys.platform != "linux":
            return set()
        pids = (int(place.name) for place in PROC.iterdir() if place.name.isdecimal())
        return {pid for pid in pids if self.has(pid)}

    def heeds(self, pid: int, number: signal.Signals) -> bool:
        """Has a process a handler for a signal? Yes, where nobody knows."""
        if not self.has(pid):
            return True
        with contextlib.suppress(OSError, ValueError, IndexError):
            status = PROC.joinpath(str(pid), "status").read_text()
            caught = int(status.split("SigCgt:")[1].split()[0], 16)
            return bool(caught >> (number - 1) & 1)
        return True

    def send_to(self, pid: int, number: signal.Signals) -> None:
        """Signal one process, if it is of this container; it may be gone."""
        if sys.platform != "linux":
            return
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(pid)
            try:
                # Asked now that the number cannot pass to a stranger.
                if self.has(pid):
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)


# Ends containers that an engine has lost sight of.


def end_forgotten(container: str) -> None:
    """After a container was removed, by id or name: end whatever still runs of it."""
    if sys.platform != "linux":
        return
    for monitor, words in _monitors(container):
        with contextlib.suppress(psutil.Error, ValueError, OSError):
            # Of one that ends as it should, only Podman's own clean-up is left.
            left = [c for c in monitor.children() if c.name() != "podman"]
            if left:
                _delete(words[words.index("-r") + 1], words[words.index("-c") + 1])
            for child in left:
                child.kill()


def _delete(runtime: str, id_: str) -> None:
    """Its process, its control groups and what is noted of it."""
    command = [runtime, "delete", "--force", id_]
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(command, capture_output=True, timeout=_END_S, check=False)


def _monitors(container: str) -> Iterator[tuple[psutil.Process, list[str]]]:
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError, psutil.Error):
            words = _words(place) if place.name.isdecimal() else []
            is_monitor = container in words[1:] and Path(words[0]).name == _MONITOR
            if is_monitor and _is_ours(place):
                yield psutil.Process(int(place.name)), words


def _words(place: Path) -> list[str]:
    return (place / "cmdline").read_bytes().decode(errors="replace").split("\0")


def _is_ours(place: Path) -> bool:
    """Whoever runs in a container can call itself anything, but not leave it."""
    ours = os.stat("/proc/self/ns/mnt").st_ino
    is_here = os.stat(place / "ns" / "mnt").st_ino == ours
    return is_here and place.stat().st_uid == os.getuid()
