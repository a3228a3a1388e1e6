"""The processes of a container as this machine sees them, where it does.

Engines signal a container's first process alone. Elsewhere than on Linux, or with an
engine in a virtual machine, there is nothing to see, and that is what they do here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

PROC = Path("/proc")


class Family:
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
