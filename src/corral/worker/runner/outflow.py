"""Pieces of output on their way from user code to the supervisor: at once while they
are few, gathered when they are many.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from msgspec import Raw

from corral.worker.protocol import Chunks, Frame

Key = tuple[str, int]

BURST = 64
"""So many frames may leave between two ticks; what comes then waits for the next."""
PART_BYTES = 64 << 10


class Outflow:
    """Numbers and sends what tasks emit. Safe to use from any thread.

    Pieces of one attempt never overtake each other: they are numbered, gathered and
    sent under one lock, which is held while the supervisor takes no more.
    """

    def __init__(self, send: Callable[[Frame], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._numbers: dict[Key, int] = {}
        self._kept: dict[Key, Chunks] = {}
        self._bytes = 0
        self._left = BURST

    def begin(self) -> None:
        """A batch starts: nothing of it has been emitted."""
        with self._lock:
            self._numbers.clear()

    def restart(self, key: Key) -> None:
        """This attempt is run once more, from its start."""
        with self._lock:
            self._flush()
            self._numbers.pop(key, None)

    def go_on(self, key: Key, count: int) -> None:
        """Count from here, unless something was emitted already."""
        with self._lock:
            self._numbers.setdefault(key, count)

    def emit(self, key: Key, value: Raw) -> None:
        with self._lock:
            number = self._numbers[key] = self._numbers.get(key, 0) + 1
            if self._left and not self._kept:
                self._left -= 1
                self._send(Chunks(*key, number, [value]))
                return
            if (kept := self._kept.get(key)) is None:
                kept = self._kept[key] = Chunks(*key, number, [])
            kept.values.append(value)
            self._bytes += len(memoryview(value))
            if self._bytes > PART_BYTES:
                self._flush()

    def tick(self) -> None:
        """Some time has passed: a burst may leave again."""
        if self._kept or not self._left:
            with self._lock:
                self._flush()
                self._left = BURST
        else:
            self._left = BURST

    def flush(self) -> None:
        if self._kept:
            with self._lock:
                self._flush()

    def _flush(self) -> None:
        kept, self._kept = self._kept, {}
        self._bytes = 0
        for chunks in kept.values():
            self._send(chunks)
