"""A container's output as the engine sends it: told apart, in pieces, to its end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from docker.utils.socket import frames_iter

from corral.worker.isolation.process import OnOutput

PIECE = 64 * 1024
HEADER = 8
_STREAMS = {1: "stdout", 2: "stderr"}


class ContainerStream:
    """What the SDK gives for a socket; read by one thread, closed by anyone."""

    def __init__(self, given: Any) -> None:
        self._given = given
        self._socket = getattr(given, "_sock", None)
        response = getattr(given, "_response", None)
        # Output that came along with the answer's head is in this buffer, and the
        # SDK's own reader would go past it.
        self._buffer: Any = response.raw._fp.fp if self._socket and response else None
        if self._socket is not None:
            self._socket.settimeout(None)

    def pieces(self) -> Iterator[tuple[str, bytes]]:
        """`stdout` or `stderr` and what was said, for as long as there is more.

        The engine holds the program back while nobody asks, so nothing piles up.
        """
        frames = self._frames() if self._buffer else _unbuffered(self._given, tty=False)
        for number, data in frames:
            yield _STREAMS.get(number, "stdout"), data

    def _frames(self) -> Iterator[tuple[int, bytes]]:
        while len(head := self._buffer.read(HEADER)) == HEADER:
            left = int.from_bytes(head[4:], "big")
            while left and (data := self._buffer.read1(min(left, PIECE))):
                left -= len(data)
                yield head[0], data

    def pass_on(self, on_output: OnOutput) -> None:
        """Give every piece away, then close."""
        try:
            for name, data in self.pieces():
                on_output(name, data)
        finally:
            self.close()

    def close(self) -> None:
        # Closing what was given alone would leave the real socket open.
        for part in (self._buffer, self._given, self._socket):
            if part is not None:
                with contextlib.suppress(OSError):
                    part.close()


_unbuffered: Any = frames_iter
