"""The last of what was printed: bounded, exact, and aware of how much it let go."""

from __future__ import annotations

from collections import deque

Block = tuple[float, str, bytes]
"""When, by which stream, and whole lines of it."""


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
