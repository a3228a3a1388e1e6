"""Locks on files, shared or exclusive, between threads and between processes.

The system drops them when their holder dies, however it dies.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from corral.core.backoff import Backoff
from corral.process.keep_alive import Tries

_PAUSES = Backoff(0.002, 0.1, factor=1.5)

if sys.platform == "win32":
    import ctypes
    import msvcrt
    from ctypes import wintypes

    class _Overlapped(ctypes.Structure):
        _fields_ = (
            ("internal", ctypes.c_void_p),
            ("internal_high", ctypes.c_void_p),
            ("offset", wintypes.DWORD),
            ("offset_high", wintypes.DWORD),
            ("event", wintypes.HANDLE),
        )

    _AT_ONCE, _EXCLUSIVE = 1, 2

    def _try(fd: int, *, shared: bool) -> bool:
        handle = wintypes.HANDLE(msvcrt.get_osfhandle(fd))
        flags = _AT_ONCE | (0 if shared else _EXCLUSIVE)
        region = ctypes.byref(_Overlapped())
        call = ctypes.windll.kernel32.LockFileEx
        return bool(call(handle, flags, 0, 1, 0, region))

    def _drop(fd: int) -> None:
        """Closing the file is enough: no other process can have it."""

else:
    import fcntl

    def _try(fd: int, *, shared: bool) -> bool:
        try:
            fcntl.flock(
                fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
            )
        except BlockingIOError:
            return False
        return True

    def _drop(fd: int) -> None:
        # By name and not by closing alone: a tool may have left something running
        # that inherited the file.
        fcntl.flock(fd, fcntl.LOCK_UN)


@dataclass(frozen=True, slots=True)
class FileLock:
    """A lock that is held. Whoever inherits `fd` holds it, too."""

    path: Path
    fd: int

    def release(self) -> None:
        _drop(self.fd)
        os.close(self.fd)

    def forget(self) -> None:
        """Remove the file of an exclusive lock, which is held until its release."""
        # Windows does not unlink what is open; an empty file more does no harm.
        with contextlib.suppress(OSError):
            self.path.unlink()


def attempt(path: Path, *, shared: bool) -> FileLock | None:
    """Take the lock if that needs no waiting."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if not _try(fd, shared=shared):
            os.close(fd)
            return None
        if _is_at(path, fd):
            return FileLock(path, fd)
        # Its last holder has removed the file after we opened it.
        os.close(fd)


def acquire(path: Path, *, shared: bool, timeout_s: float) -> FileLock:
    """Wait for the lock.

    Raises:
        TimeoutError: somebody held it for longer than `timeout_s`.
    """
    give_up_at = time.monotonic() + timeout_s
    tries = Tries(_PAUSES)
    while (lock := attempt(path, shared=shared)) is None:
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"{path.name} is held by somebody else")
        time.sleep(tries.next_s())
    return lock


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False
