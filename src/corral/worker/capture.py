"""Catches what user code prints, line by line, for the task that is running.

What is printed while no task runs goes to the real stderr.
"""

from __future__ import annotations

import io
import sys
import threading
import time
from typing import Any, TextIO

from corral.worker.text import clean

Line = tuple[float, str, str]

TASK_LIMIT = 1024 * 1024
LINE_LIMIT = 8 * 1024
CUT_MARK = f"[output cut: this task printed more than {TASK_LIMIT // 1024} KiB]"


class Capture:
    """The gathered lines of the running task; safe to feed from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_open = False
        self._lines: list[Line] = []
        self._partial: dict[str, bytearray] = {}
        self._size = 0
        self.is_dirty = False

    def install(self) -> None:
        """Put the capture in the place of sys.stdout and sys.stderr."""
        sys.stdout = self._tap("stdout", 1)
        sys.stderr = self._tap("stderr", 2)

    def _tap(self, name: str, fd: int) -> TextIO:
        raw: Any = _Tap(self, name, fd)
        return io.TextIOWrapper(
            raw, "utf-8", errors="backslashreplace", newline="", write_through=True
        )

    def open(self) -> None:
        """A task starts."""
        self._is_open = True

    def close(self) -> list[Line]:
        """The task has ended: its last lines, an unfinished one included."""
        self._is_open = False
        if not self.is_dirty:
            return []
        with self._lock:
            for stream, rest in self._partial.items():
                if rest:
                    self._add(stream, bytes(rest))
            self._partial.clear()
            self._size = 0
            self.is_dirty = False
            lines, self._lines = self._lines, []
        return lines

    def take(self) -> list[Line]:
        """The whole lines gathered so far."""
        with self._lock:
            lines, self._lines = self._lines, []
        return lines

    def feed(self, stream: str, data: bytes) -> None:
        if not self._is_open:
            sys.__stderr__.buffer.write(data)  # type: ignore[union-attr]
            sys.__stderr__.flush()  # type: ignore[union-attr]
            return
        with self._lock:
            self.is_dirty = True
            rest = self._partial.setdefault(stream, bytearray())
            rest += data
            while (end := rest.find(b"\n")) >= 0:
                self._add(stream, bytes(rest[:end]))
                del rest[: end + 1]
            if len(rest) > LINE_LIMIT:
                self._add(stream, bytes(rest))
                rest.clear()

    def _add(self, stream: str, raw: bytes) -> None:
        if self._size > TASK_LIMIT:
            return
        self._size += len(raw) + 1
        if self._size > TASK_LIMIT:
            self._lines.append((time.time(), stream, CUT_MARK))
            return
        # A progress bar overwrites its line: only what it shows last counts.
        shown = raw.rstrip(b"\r").rsplit(b"\r", 1)[-1]
        text = clean(shown.decode("utf-8", "backslashreplace"), LINE_LIMIT)
        self._lines.append((time.time(), stream, text))


class _Tap(io.RawIOBase):
    """The bottom of a captured text stream."""

    def __init__(self, capture: Capture, name: str, fd: int) -> None:
        self._capture = capture
        self._name = name
        self._fd = fd

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, data: Any, /) -> int:
        raw = bytes(data)
        self._capture.feed(self._name, raw)
        return len(raw)
