"""Workers' Redis traffic through the manager: a local socket, a WebSocket each.

Bytes go both ways unread. A connection that ends on either side ends on the other;
making a new one is the business of whoever wants one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Literal

from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from corral.trust import is_this_machine, tls_context

LOG = logging.getLogger("corral.agent")
SOCKET = "engine.sock"
CHUNK = 64 * 1024
LONGEST_FRAME = 16 * 1024 * 1024
# The kernel's field has 104 bytes on some systems and 108 on others.
LONGEST_PATH = 100
_SAY_EVERY_S = 30.0


class Tunnel:
    """A Redis address on this machine, as long as it is open."""

    def __init__(
        self, manager_url: str, key: str, folder: Path, *, ca_file: Path | None = None
    ) -> None:
        self._url = "ws" + manager_url.rstrip("/").removeprefix("http") + "/engine"
        self._key = key
        self._folder = folder
        self._tls = tls_context(manager_url, ca_file)
        self._proxy: Literal[True] | None = (
            None if is_this_machine(manager_url) else True
        )
        self._lock = threading.Lock()
        self._open: set[_Pipe] = set()
        self._closed = False
        self._silent_until = 0.0
        self._listener, self.address = _listen(folder)
        threading.Thread(target=self._accept, name="tunnel", daemon=True).start()

    def close(self) -> None:
        """Stop listening and end every connection."""
        with self._lock:
            self._closed = True
            pipes = list(self._open)
        # On Linux closing alone would leave the thread in accept for ever.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for pipe in pipes:
            pipe.cut()
        _clear(self._folder)

    @property
    def connections(self) -> int:
        with self._lock:
            return len(self._open)

    def _accept(self) -> None:
        while not self._closed:
            try:
                local, _ = self._listener.accept()
            except OSError as error:
                if not self._closed:
                    # Out of file descriptors, most likely: it passes.
                    LOG.warning("the tunnel cannot take a connection: %s", error)
                    time.sleep(0.2)
                continue
            threading.Thread(
                target=self._carry, args=(local,), name="tunnel-up", daemon=True
            ).start()

    def _carry(self, local: socket.socket) -> None:
        pipe = _Pipe(local)
        with self._lock:
            if self._closed:
                local.close()
                return
            self._open.add(pipe)
        try:
            with self._connect() as remote:
                pipe.run(remote)
                if remote.close_reason:
                    self._say(remote.close_reason)
        except (WebSocketException, OSError) as error:
            self._say(error)
        finally:
            pipe.cut()
            with self._lock:
                self._open.discard(pipe)

    def _connect(self) -> ClientConnection:
        return connect(
            self._url,
            additional_headers={"Authorization": f"Bearer {self._key}"},
            ssl=self._tls if self._url.startswith("wss") else None,
            proxy=self._proxy,
            compression=None,
            max_size=LONGEST_FRAME,
            open_timeout=5.0,
            close_timeout=1.0,
            ping_interval=10.0,
            ping_timeout=10.0,
        )

    def _say(self, error: Exception | str) -> None:
        # Workers try again every few seconds; one line now and then is enough.
        now = time.monotonic()
        if now >= self._silent_until:
            self._silent_until = now + _SAY_EVERY_S
            LOG.warning("no way to Redis through the manager: %s", error)


class _Pipe:
    """One local connection and the WebSocket that carries it."""

    def __init__(self, local: socket.socket) -> None:
        self._local = local

    def run(self, remote: ClientConnection) -> None:
        """Carry bytes until either side ends, and then end the other."""
        down = threading.Thread(
            target=self._down, args=(remote,), name="tunnel-down", daemon=True
        )
        down.start()
        try:
            while data := self._local.recv(CHUNK):
                remote.send(data)
        except (WebSocketException, OSError):
            pass
        remote.close()
        down.join()

    def _down(self, remote: ClientConnection) -> None:
        try:
            while True:
                self._local.sendall(remote.recv(decode=False))
        except (WebSocketException, OSError):
            # Wakes the other thread, which is waiting for the local side.
            self._shut()

    def cut(self) -> None:
        self._shut()
        self._local.close()

    def _shut(self) -> None:
        with contextlib.suppress(OSError):
            self._local.shutdown(socket.SHUT_RDWR)


def _listen(folder: Path) -> tuple[socket.socket, str]:
    if sys.platform == "win32":
        # Any user of the machine may connect here, and then has to log in to Redis.
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        return listener, f"redis://127.0.0.1:{listener.getsockname()[1]}"
    _clear(folder)
    path = _socket_path(folder)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Between bind and chmod only the folder, open to us alone, protects it.
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(64)
    except OSError:
        listener.close()
        raise
    return listener, f"unix://{path}"


def _socket_path(folder: Path) -> Path:
    """In the agent's folder, or in a fresh private one when that is too deep."""
    path = folder / SOCKET
    if len(os.fsencode(path)) < LONGEST_PATH:
        return path
    short = Path(tempfile.mkdtemp(prefix="corral-")) / SOCKET
    # Leads the next agent there, should this one be killed and leave it behind.
    path.symlink_to(short)
    return short


def _clear(folder: Path) -> None:
    path = folder / SOCKET
    if path.is_symlink():
        short = path.readlink()
        short.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            short.parent.rmdir()
    path.unlink(missing_ok=True)
