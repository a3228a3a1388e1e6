"""HTTP as a simulated node speaks it: one kept connection, next to no cost of its own.

A client library would cost more than the manager that is measured beside it.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec

ANSWER_S, AGAIN_S = 10.0, 0.5
_decode = msgspec.json.Decoder().decode


class Away(Exception):
    """The manager does not answer."""


class Refused(Exception):
    """The manager answered that it does not want this."""


class Line:
    """One kept connection to the manager; made again when it broke."""

    def __init__(self, place: tuple[str, int], key: str) -> None:
        self._place = place
        self._head = f"host: {place[0]}:{place[1]}\r\nauthorization: Bearer {key}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(
        self, method: str, path: str, body: bytes = b"", wait_s: float = 0.0
    ) -> Any:
        """The answer's JSON.

        Raises:
            Away: no connection, no answer, or one that says to come again.
            Refused: any other answer that is not a success.
        """
        try:
            async with asyncio.timeout(ANSWER_S + wait_s):
                status, told = await self._exchange(method, path, body)
        except (OSError, EOFError, ValueError) as error:
            self.close()
            raise Away(repr(error)) from error
        if status in (429, 503):
            raise Away(f"{status} {told[:200]!r}")
        if status >= 300:
            raise Refused(f"{method} {path}: {status} {told[:300]!r}")
        return _decode(told)

    async def _exchange(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._place)
        reader, writer = self._streams
        first = f"{method} {path} HTTP/1.1\r\n{self._head}content-length: {len(body)}"
        writer.write(f"{first}\r\n\r\n".encode() + body)
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]
        return int(head[9:12]), await reader.readexactly(int(length))

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def patiently(line: Line, method: str, path: str, body: bytes) -> Any:
    """Call until there is an answer, as agents and supervisors do."""
    while True:
        try:
            return await line.call(method, path, body)
        except Away as error:
            print(f"{method} {path}: {error}", file=sys.stderr)
            await asyncio.sleep(AGAIN_S)
