"""Catches what user code prints, in whole lines, for the task that is running.

What is printed while no task runs goes to the real stderr. However much is printed,
what is held here stays small: the first part leaves as it comes, the last is kept.
"""

from __future__ import annotations

import io
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TextIO

from corral.worker.text import clean

Block = tuple[float, str, bytes]
"""When, by which stream, and whole lines of it."""
Line = tuple[float, str, str]
"""When, by which stream, and the text: one line, or several with \\n between them."""
HEAD_LIMIT = 8 << 20
TAIL_LIMIT = 256 << 10
LINE_LIMIT = 16 << 10
PIECE_LIMIT = 64 << 10
# So much may wait for the flusher; then who prints sees to it himself.
FULL = 64 << 10
# Lines that come so close together share a time.
TOGETHER_S = 0.01
_LONG = re.compile(rb"[^\n]{%d,}" % (LINE_LIMIT + 1))
_own: ContextVar[Capture] = ContextVar("capture")


class Tail:
    """Takes blocks without end and keeps the last `limit` bytes of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._blocks: deque[Block] = deque()
        self._size = 0
        self.lost_lines = 0
        self.lost_bytes = 0

    def add(self, at: float, stream: str, data: bytes) -> None:
        self._blocks.append((at, stream, data))
        self._size += len(data)
        while self._size - len(self._blocks[0][2]) >= self._limit:
            self._let_go(self._blocks.popleft()[2])

    def blocks(self) -> list[Block]:
        """What is kept, from the start of a line on."""
        excess = self._size - self._limit
        if excess > 0:
            at, stream, first = self._blocks.popleft()
            cut = first.find(b"\n", excess - 1) + 1
            # The one line there is, or one without an end, is cut in its middle.
            if not cut or (cut == len(first) and not self._blocks):
                cut = excess
            self._let_go(first[:cut])
            if first[cut:]:
                self._blocks.appendleft((at, stream, first[cut:]))
        return list(self._blocks)

    def _let_go(self, data: bytes) -> None:
        self._size -= len(data)
        self.lost_bytes += len(data)
        self.lost_lines += data.count(b"\n")


class Capture:
    """The gathered lines of the running task; safe to feed from any thread.

    `on_full` is called, from a thread that prints, when too much has gathered.
    """

    def __init__(self, on_full: Callable[[], None] = lambda: None) -> None:
        # Entered again when something that prints is collected as garbage in here.
        self._lock = threading.RLock()
        self._is_open = False
        self._pending: list[tuple[float, str, bytearray]] = []
        self._size = 0
        self._streams: dict[str, _LineJoiner] = {}
        self._head_limit = HEAD_LIMIT
        self._head_left = HEAD_LIMIT
        self._tail: Tail | None = None
        self._taps: list[_CapturedStream] = []
        self.is_dirty = False
        self._on_full = on_full

    def install(self) -> None:
        """Put the capture in the place of sys.stdout and sys.stderr."""
        sys.stdout = self._tap("stdout", 1)
        sys.stderr = self._tap("stderr", 2)

    def share(self) -> None:
        """From now on take only what those print who `claim` it."""
        nobody = Capture()
        for tap in self._taps:
            tap.lead_to(nobody)

    def claim(self) -> None:
        """What this thread prints from now on comes here."""
        _own.set(self)

    def _tap(self, name: str, fd: int) -> TextIO:
        tap = _CapturedStream(self, name, fd)
        self._taps.append(tap)
        raw: Any = tap
        return io.TextIOWrapper(
            raw, "utf-8", errors="backslashreplace", newline="", write_through=True
        )

    def limit(self, head_bytes: int) -> None:
        """How much of each task's output is kept, beside the last of it."""
        self._head_limit = self._head_left = head_bytes

    def open(self) -> None:
        """A task starts."""
        self._is_open = True

    def close(self) -> list[Line]:
        """The task has ended: its last lines, an unfinished one included."""
        self._is_open = False
        if not self.is_dirty:
            return []
        with self._lock:
            for name, stream in self._streams.items():
                if stream.is_begun:
                    self._keep(name, stream.end())
            lines = self.take()
            if self._tail is not None:
                lines += _end_of(self._tail)
                self._tail = None
            self._head_left = self._head_limit
            self.is_dirty = False
        return lines

    def take(self) -> list[Line]:
        """The whole lines gathered so far."""
        with self._lock:
            pending, self._pending = self._pending, []
            self._size = 0
        return [
            line for block in pending for line in _lines(*block[:2], bytes(block[2]))
        ]

    def feed(self, name: str, data: bytes) -> None:
        with self._lock:
            if self._is_open:
                self.is_dirty = True
                stream = self._streams.get(name)
                if stream is None:
                    stream = self._streams[name] = _LineJoiner()
                if block := stream.join(data):
                    self._keep(name, block)
                if self._size < FULL:
                    return
                tell = self._on_full
            else:
                tell = _outside(data)
        tell()

    def _keep(self, name: str, block: bytes) -> None:
        now = time.time()
        if self._tail is None:
            left = self._head_left - len(block)
            if left >= 0:
                self._head_left = left
                self._hand_on(now, name, block)
                return
            cut = block.rfind(b"\n", 0, self._head_left) + 1
            if cut:
                self._hand_on(now, name, block[:cut])
                block = block[cut:]
            self._tail = Tail(TAIL_LIMIT)
        self._tail.add(now, name, block)

    def _hand_on(self, now: float, name: str, block: bytes) -> None:
        self._size += len(block)
        if self._pending:
            at, stream, gathered = self._pending[-1]
            if stream == name and now - at < TOGETHER_S:
                gathered += block
                return
        self._pending.append((now, name, bytearray(block)))


class _LineJoiner:
    """Puts the lines of one stream together, each cut where it is too long."""

    __slots__ = ("_cut", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._cut = 0

    @property
    def is_begun(self) -> bool:
        return bool(self._rest)

    def join(self, data: bytes) -> bytes:
        """The lines that `data` ends; what it begins is held back."""
        if data == b"\n":  # `print` writes it by itself
            return self.end()
        end = data.rfind(b"\n") + 1
        if not end:
            self._hold(data)
            return b""
        begun, first = b"", 0
        if self._rest:
            first = data.find(b"\n") + 1
            self._hold(data[: first - 1])
            begun = self.end()
        if end < len(data):
            self._hold(data[end:])
        return begun + _cut_long(data[first:end])

    def end(self) -> bytes:
        line, cut = self._rest, self._cut
        self._rest, self._cut = b"", 0
        return b"%b%b\n" % (line, _mark(cut)) if cut else line + b"\n"

    def _hold(self, data: bytes) -> None:
        if b"\r" in data:
            # What a progress bar overwrites need not be held.
            data, self._cut = _last_shown(self._rest + data), 0
            self._rest = b""
        room = LINE_LIMIT - len(self._rest)
        if len(data) > room:
            self._cut += len(data) - room
            data = data[:room]
        self._rest += data


def _mark(cut: int) -> bytes:
    return b" [%d bytes of this line left out]" % cut


def _cut_long(block: bytes) -> bytes:
    if len(block) <= LINE_LIMIT:
        return block
    starts = range(0, len(block) - LINE_LIMIT, LINE_LIMIT)
    if all(block.find(b"\n", at, at + LINE_LIMIT) >= 0 for at in starts):
        return block  # at most: two halves of a line, each below the limit
    return _LONG.sub(lambda m: m[0][:LINE_LIMIT] + _mark(len(m[0]) - LINE_LIMIT), block)


def _last_shown(line: bytes) -> bytes:
    """What is seen in the end of a line that overwrites itself."""
    return line[line.rstrip(b"\r").rfind(b"\r") + 1 :]


def _lines(at: float, stream: str, block: bytes) -> Iterator[Line]:
    """Lines of at most PIECE_LIMIT bytes together, as text."""
    if b"\r" in block:
        rows = block.split(b"\n")
        block = b"\n".join(_last_shown(row).rstrip(b"\r") for row in rows)
    start = 0
    while start < len(block):
        end = len(block)
        if end - start > PIECE_LIMIT:
            # Every line is shorter than that, so there is an end of one.
            end = block.rfind(b"\n", start, start + PIECE_LIMIT) + 1
        text = block[start : end - 1].decode("utf-8", "backslashreplace")
        yield at, stream, clean(text, 8 * PIECE_LIMIT)  # escapes take more
        start = end


def _end_of(tail: Tail) -> Iterator[Line]:
    """What was left out, in a line, and then the last of what was printed."""
    blocks: list[Block] = tail.blocks()
    if tail.lost_bytes:
        lost = f"[{tail.lost_lines} lines, {tail.lost_bytes} bytes left out]"
        yield blocks[0][0], blocks[0][1], lost
    for at, stream, block in blocks:
        yield from _lines(at, stream, block)


def _outside(data: bytes) -> Callable[[], None]:
    def write() -> None:
        sys.__stderr__.buffer.write(data)  # type: ignore[union-attr]
        sys.__stderr__.flush()  # type: ignore[union-attr]

    return write


class _CapturedStream(io.RawIOBase):
    """The bottom of a captured text stream."""

    def __init__(self, capture: Capture, name: str, fd: int) -> None:
        self._capture = capture
        self._name = name
        self._fd = fd

    def lead_to(self, capture: Capture) -> None:
        self._capture = capture

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, data: Any, /) -> int:
        raw = bytes(data)
        _own.get(self._capture).feed(self._name, raw)
        return len(raw)
