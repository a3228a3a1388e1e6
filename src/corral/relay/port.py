"""Opens the port of a node's or worker's URL and serves it from a thread."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from corral.errors import AlreadyRunning, SettingsError
from corral.trust import is_loopback_name

if TYPE_CHECKING:
    from starlette.types import ASGIApp

log = logging.getLogger(__name__)
MANAGER = "x-corral-manager"
"""The header that names the manager behind a port."""
_BACKLOG = 128
# Linux: every TCP socket of this machine, its state and its owner.
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"
_MOST_CALLERS = 500


def has_port(url: str | None) -> bool:
    """Is this a URL we open a port for? Others are names, or somebody else's port."""
    try:
        parts = urlsplit(url or "")
        return parts.scheme == "http" and bool(parts.hostname) and bool(parts.port)
    except ValueError:
        return False


def listen(
    url: str, patience_s: float = 0.0, *, allow_plaintext: bool = False
) -> socket.socket:
    """A socket on the URL's port: on loopback for localhost, else on the host given.

    Raises:
        AlreadyRunning: somebody has that port, for longer than `patience_s`.
        SettingsError: others on the network could read the keys that are sent to it.
    """
    parts = urlsplit(url)
    host = _address(parts.hostname or "")
    if not allow_plaintext and not is_loopback_name(host):
        raise SettingsError(
            f"{url} would be plain text beyond this machine, with the keys of all who "
            "call: use localhost, or put a proxy with TLS before it; on the node "
            "CORRAL_ALLOW_PLAINTEXT=true lets it",
            url=url,
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    give_up_at = time.monotonic() + patience_s
    while True:
        try:
            return socket.create_server(
                (host, parts.port or 0), family=family, backlog=_BACKLOG
            )
        except OSError as error:
            if time.monotonic() >= give_up_at:
                text = f"cannot open the port of {url}: {error.strerror or error}"
                raise AlreadyRunning(text, url=url) from error
        time.sleep(0.1)


def serve(app: ASGIApp, opened: socket.socket) -> None:
    """Answer on an open socket from a thread, until this process ends."""
    # Late: a node or worker without a port does not pay for a server.
    import uvicorn

    from corral.relay.http_limits import HttpLimits, limited_protocol

    config = uvicorn.Config(
        app,
        http=limited_protocol(HttpLimits(connections=_MOST_CALLERS)),
        loop="asyncio",
        proxy_headers=False,
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        ws="none",
    )
    server = uvicorn.Server(config)
    threading.Thread(
        target=server.run, args=([opened],), name="port", daemon=True
    ).start()
    log.info("answers on port %s", opened.getsockname()[1])


def owners(port: int) -> set[int]:
    """Whose processes listen on a port of this machine, as user ids.

    On systems that do not tell it is empty, and where the port leads into a container.
    """
    found: set[int] = set()
    for table in _TABLES:
        with contextlib.suppress(OSError):
            rows = table.read_text(encoding="ascii").splitlines()[1:]
            for row in map(str.split, rows):
                is_open = row[3] == _LISTENS
                if is_open and int(row[1].rpartition(":")[2], 16) == port:
                    found.add(int(row[7]))
    return found


def _address(host: str) -> str:
    """What to listen on for a host; the name of this machine to itself is loopback."""
    if host == "localhost" or host.endswith(".localhost"):
        return "127.0.0.1"
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(host))
    with contextlib.suppress(OSError):  # told again when it is listened on
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    return host
