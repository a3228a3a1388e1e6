"""The stand-in for Redis: the TCP server of fakeredis behind a password.

Run as `python -m corral.embedded.fake_redis redis.conf`. It is for trying Corral out
where no Redis can be had; whatever it held is gone when it ends.
"""

from __future__ import annotations

import hmac
import shlex
import signal
import socket
import sys
import time
from pathlib import Path
from socketserver import BaseRequestHandler
from types import FrameType
from typing import cast

from fakeredis import TcpFakeServer

_FIRST_WORD_S = 5.0
_LONGEST_HELLO = 4096
# Asking what is there before logging in is no offence; guessing on is.
_TRIES = 3


class GuardedServer(TcpFakeServer):
    """Serves only connections that open with the right password.

    The library itself lets everybody in, and its HELLO ignores credentials.
    """

    def __init__(self, port: int, password: str) -> None:
        self.password = password.encode()
        super().__init__(("127.0.0.1", port), server_version=(7, 2))
        # A client that stays connected must not hold up the end.
        self.daemon_threads = True
        self.fake_server.config[b"requirepass"] = self.password
        theirs = cast(type, self.RequestHandlerClass)
        self.RequestHandlerClass = type("GuardedHandler", (PasswordHandler, theirs), {})

    def admits(self, user: bytes, password: bytes) -> bool:
        if user == b"default":
            return hmac.compare_digest(password, self.password)
        rights = self.fake_server.acl
        known = user in rights.get_users()
        return known and bool(rights.get_user_acl(user).check_password(password))


class PasswordHandler(BaseRequestHandler):
    """Goes before the library's own handler of a connection."""

    server: GuardedServer

    def handle(self) -> None:
        for _ in range(_TRIES):
            words = first_command(self.request)
            shown = credentials(words)
            if shown is not None and self.server.admits(*shown):
                super().handle()
                return
            self.request.sendall(b"-NOAUTH Authentication required.\r\n")
            if not words:
                return
            # It was only looked at: take it out of the way of the next one.
            self.request.recv(len(joined(words)), socket.MSG_WAITALL)


def first_command(link: socket.socket) -> list[bytes]:
    """The words of the first command, left unread for the server; [] if none came."""
    give_up_at = time.monotonic() + _FIRST_WORD_S
    while time.monotonic() < give_up_at:
        try:
            seen = link.recv(_LONGEST_HELLO, socket.MSG_PEEK)
        except BlockingIOError:
            seen = b" "
        if not seen or len(seen) == _LONGEST_HELLO:
            return []
        words = split_command(seen)
        if words:
            return words
        time.sleep(0.005)
    return []


def split_command(seen: bytes) -> list[bytes]:
    """The words of the first whole command in `seen`; [] while it is not whole."""
    head, _, rest = seen.partition(b"\r\n")
    if not head.startswith(b"*") or not head[1:].isdigit():
        return []
    words: list[bytes] = []
    for _ in range(int(head[1:])):
        size, _, rest = rest.partition(b"\r\n")
        if not size.startswith(b"$") or not size[1:].isdigit():
            return []
        length = int(size[1:])
        if len(rest) < length + 2:
            return []
        words.append(rest[:length])
        rest = rest[length + 2 :]
    return words


def joined(words: list[bytes]) -> bytes:
    """A command as it was sent."""
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n%b" % (len(words), b"".join(parts))


def credentials(words: list[bytes]) -> tuple[bytes, bytes] | None:
    """User and password from AUTH or HELLO ... AUTH; None when there are none."""
    verb = words[0].upper() if words else b""
    if verb == b"AUTH" and len(words) in (2, 3):
        user = words[1] if len(words) == 3 else b"default"
        return user, words[-1]
    if verb == b"HELLO":
        upper = [word.upper() for word in words]
        if b"AUTH" in upper[2:]:
            shown = words[upper.index(b"AUTH", 2) + 1 :][:2]
            return (shown[0], shown[1]) if len(shown) == 2 else None
    return None


def read_settings(path: Path) -> dict[str, str]:
    """The `name "value"` lines of a Redis configuration."""
    lines = (shlex.split(line) for line in path.read_text("utf-8").splitlines())
    return {words[0]: words[1] for words in lines if len(words) == 2}


def main(path: str) -> None:
    settings = read_settings(Path(path))
    server = GuardedServer(int(settings["port"]), settings["requirepass"])

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(0)

    signal.signal(signal.SIGTERM, leave)
    server.serve_forever(poll_interval=0.5)


if __name__ == "__main__":
    main(sys.argv[1])
