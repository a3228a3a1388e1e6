"""The shape of a server that is a child process, and whether it answers.

PostgreSQL and Redis are asked in their own words, a few bytes on a socket: no driver is
imported, so that the parent starts fast.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from corral.errors import EmbeddedError
from corral.process.keep_alive import Command, launch, stop

Address = Path | tuple[str, int]

_PROTOCOL_3_0 = 196_608
_TIMEOUT_S = 2.0
STOP_S = 10.0


def connect(address: Address) -> socket.socket:
    if isinstance(address, tuple):
        return socket.create_connection(address, timeout=_TIMEOUT_S)
    family = getattr(socket, "AF_UNIX")  # noqa: B009 - Windows has no such name
    link = socket.socket(family, socket.SOCK_STREAM)
    link.settimeout(_TIMEOUT_S)
    try:
        link.connect(str(address))
    except OSError:
        link.close()
        raise
    return link


def postgres_answers(address: Address, user: str, database: str) -> bool:
    """True once it asks for a password: while it recovers it sends an error."""
    words = b"user\0%b\0database\0%b\0\0" % (user.encode(), database.encode())
    hello = struct.pack("!ii", len(words) + 8, _PROTOCOL_3_0) + words
    try:
        with connect(address) as link:
            link.sendall(hello)
            # Read it all: closing on unread bytes leaves a complaint in its log.
            return link.recv(1024).startswith(b"R")
    except OSError:
        return False


def redis_answers(address: Address, password: str) -> bool:
    """True once it accepts the password and is done with loading its data."""
    try:
        with connect(address) as link:
            link.sendall(command("AUTH", password) + command("PING"))
            heard = b""
            while heard.count(b"\r\n") < 2:
                part = link.recv(256)
                if not part:
                    return False
                heard += part
            return heard == b"+OK\r\n+PONG\r\n"
    except OSError:
        return False


def command(*words: str) -> bytes:
    """A Redis command as it goes over the wire."""
    parts = [b"$%d\r\n%b\r\n" % (len(w.encode()), w.encode()) for w in words]
    return b"*%d\r\n%b" % (len(words), b"".join(parts))


def free_port() -> int:
    """A loopback port nobody uses at this moment."""
    with socket.socket() as link:
        link.bind(("127.0.0.1", 0))
        return int(link.getsockname()[1])


class StoreServer(Protocol):
    """A store that runs as a child process of the parent."""

    @property
    def name(self) -> str: ...

    @property
    def url(self) -> str:
        """How clients reach it, password included."""

    @property
    def stop_signal(self) -> int:
        """Asks it to stop soon and cleanly."""

    @property
    def warning(self) -> str | None:
        """What the user should know about the choice that was made."""

    def prepare(self, deaths: int) -> Command:
        """Make it ready to start; `deaths` is how often in a row it just died."""

    def is_ready(self) -> bool: ...


@contextmanager
def running(server: StoreServer, log: Path, timeout_s: float = 30.0) -> Iterator[None]:
    """Run `server` for the length of a block, without supervision.

    Raises:
        EmbeddedError: when it ends or does not answer in time.
    """
    process = launch(server.prepare(0), log)
    try:
        give_up_at = time.monotonic() + timeout_s
        while not server.is_ready():
            if process.popen.poll() is not None or time.monotonic() > give_up_at:
                raise EmbeddedError(
                    f"{server.name} did not start: {process.last_line() or 'no word'}"
                )
            time.sleep(0.02)
        yield
    finally:
        stop(process.popen, STOP_S, server.stop_signal)
