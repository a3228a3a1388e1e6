"""What a script prints: passed on line by line, its tail kept.

Memory stays the same however much is printed.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

from corral.core.tasks.outcome import OUT_OF_MEMORY
from corral.worker.runner.capture import Tail

TAIL_BYTES = 32 * 1024
LINE_BYTES = 8 * 1024
_PROGRESS = re.compile(
    rb"::progress\s+(?P<done>[0-9.eE+-]+)\s*/\s*(?P<total>[0-9.eE+-]+)(?:\s+(?P<text>.*))?"
)
_SHORT = re.compile(r"\b(CUDA|HIP|XPU|MPS)[ \w]* out of memory|OutOfMemoryError")

Write = Callable[[str, bytes], object]
Say = Callable[[float, str], object]


class ScriptOutput:
    """Fed from a thread for each stream; `write` gets whole lines."""

    def __init__(self, write: Write, progress: Say) -> None:
        self._write = write
        self._progress = progress
        self._lock = threading.Lock()
        self._rest: dict[str, bytes] = {}
        self._tails: dict[str, Tail] = {}
        self.size = 0

    def feed(self, stream: str, data: bytes) -> None:
        with self._lock:
            self.size += len(data)
            data = self._rest.pop(stream, b"") + data
            end = data.rfind(b"\n") + 1
            if len(data) - end > LINE_BYTES:
                end = len(data)  # a line too long to wait for its end
            if end < len(data):
                self._rest[stream] = data[end:]
            self._pass(stream, data[:end])

    def close(self) -> None:
        """The script has ended: what it left without a line's end."""
        with self._lock:
            for stream, rest in self._rest.items():
                self._pass(stream, rest)
            self._rest.clear()

    def tail(self, stream: str) -> str:
        """The last of what was printed, cut at a line's start."""
        with self._lock:
            blocks = self._tails[stream].blocks() if stream in self._tails else []
        data = b"".join(block for _, _, block in blocks)
        return data.decode("utf-8", "backslashreplace")

    def last_line(self) -> str:
        for stream in ("stderr", "stdout"):
            lines = self.tail(stream).strip().splitlines()
            if lines:
                return lines[-1].strip()
        return ""

    def _pass(self, stream: str, data: bytes) -> None:
        if b"::progress" in data:
            data = self._without_progress(data)
        if not data:
            return
        tail = self._tails.get(stream)
        if tail is None:
            tail = self._tails[stream] = Tail(TAIL_BYTES)
        tail.add(0.0, stream, data)
        self._write(stream, data)

    def _without_progress(self, data: bytes) -> bytes:
        kept = []
        for line in data.splitlines(keepends=True):
            found = _PROGRESS.fullmatch(line.strip())
            if found is None or not self._say(found):
                kept.append(line)
        return b"".join(kept)

    def _say(self, found: re.Match[bytes]) -> bool:
        """Tell it; false for a line that only looks like progress."""
        try:
            done, total = float(found["done"]), float(found["total"])
            share = done / total
        except (ValueError, ZeroDivisionError):
            return False
        text = (found["text"] or b"").decode("utf-8", "replace").strip()
        self._progress(share, text or f"{done:g}/{total:g}")
        return True


def failure_kind(stderr: str) -> str:
    """Frameworks say in their last words that a card had too little memory."""
    return OUT_OF_MEMORY if _SHORT.search(stderr) else "exit"
