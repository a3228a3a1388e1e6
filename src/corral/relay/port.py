"""Opens the port of a node's or worker's URL and serves it from a thread."""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from corral.errors import AlreadyRunning

if TYPE_CHECKING:
    from starlette.types import ASGIApp

log = logging.getLogger(__name__)
MANAGER = "x-corral-manager"
"""The header that names the manager behind a port."""
_BACKLOG = 128
_MOST_CALLERS = 500


def has_port(url: str | None) -> bool:
    """Is this a URL we open a port for? Others are names, or somebody else's port."""
    try:
        parts = urlsplit(url or "")
        return parts.scheme == "http" and bool(parts.hostname) and bool(parts.port)
    except ValueError:
        return False


def listen(url: str, patience_s: float = 0.0) -> socket.socket:
    """A socket on the URL's port: on loopback for localhost, else on the host given.

    Raises:
        AlreadyRunning: somebody has that port, for longer than `patience_s`.
    """
    parts = urlsplit(url)
    host = _address(parts.hostname or "")
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


def _address(host: str) -> str:
    """What to listen on for a host; the name of this machine to itself is loopback."""
    if host == "localhost" or host.endswith(".localhost"):
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host
