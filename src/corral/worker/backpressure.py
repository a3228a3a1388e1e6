"""Holds back who brings more bytes than can be carried on."""

from __future__ import annotations

import threading


class Backpressure:
    """At most `limit` bytes are inside; who comes when it is full waits."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._inside = 0
        self._is_open = False
        self._freed = threading.Condition()

    def enter(self, size: int) -> None:
        with self._freed:
            # One that is larger than all there is comes in alone.
            while self._inside and self._inside + size > self._limit:
                if self._is_open:
                    break
                self._freed.wait()
            self._inside += size

    def leave(self, size: int) -> None:
        with self._freed:
            self._inside -= size
            self._freed.notify_all()

    def open(self) -> None:
        """Hold nobody back any more."""
        with self._freed:
            self._is_open = True
            self._freed.notify_all()
