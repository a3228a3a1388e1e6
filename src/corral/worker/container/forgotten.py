"""Ends containers that an engine has lost sight of.

Podman starts a monitor for each container. When Podman is killed while it makes one,
it does not know afterwards that there is a process, and removes the container without.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

_MONITOR = "conmon"
_END_S = 10.0


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
