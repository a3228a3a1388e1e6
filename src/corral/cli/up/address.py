"""Where the manager of `corral up` listens: is it free, who reaches it, and how."""

from __future__ import annotations

import errno
import shlex
import socket
import sys
from typing import TYPE_CHECKING

from corral import __version__
from corral.errors import AlreadyRunning, SettingsError

if TYPE_CHECKING:
    from corral.settings import Settings

_FOR_OTHERS = ("home", "host", "port", "ssl_cert_path", "ssl_key_path")
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


def url_of(host: str, port: int, *, is_tls: bool) -> str:
    """The address under which this machine itself reaches the manager."""
    near = _ANYWHERE.get(host, host)
    scheme = "https" if is_tls else "http"
    return f"{scheme}://{f'[{near}]' if ':' in near else near}:{port}"


def require_free(host: str, port: int) -> None:
    """Fail now, in one line, rather than after everything else was started.

    Raises:
        AlreadyRunning: somebody listens there.
        SettingsError: this machine cannot listen there at all.
    """
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, place = found[0]
        with socket.socket(family, kind, protocol) as trial:
            if sys.platform != "win32":
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(place)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise AlreadyRunning(
                f"port {port} on {host} is in use: stop what listens there, or choose"
                " another with --port",
                port=port,
            ) from None
        raise SettingsError(
            f"cannot listen on {host} port {port}: {error.strerror or error}"
        ) from error


def banner(settings: Settings, url: str) -> str:
    """What a user wants to know once everything runs."""
    key = "none needed (--insecure)" if settings.insecure else settings.admin_key_path
    rows = {
        "admin key": key,
        "first task": """corral run echo '{"message": "hi"}'""",
        "web pages": "corral dashboard",
        "exposed": exposure(settings),
        "logs": settings.home / "logs",
        "stop": "corral down, or Ctrl-C where it runs",
    }
    lines = [f"Corral {__version__} is ready at {url}"]
    flags = [n for n in _FOR_OTHERS if settings.origin(n) == "flag"]
    if flags:
        words = [
            f"CORRAL_{n.upper()}={shlex.quote(str(getattr(settings, n)))}"
            for n in flags
        ]
        rows["other shells"] = f"export {' '.join(words)}"
    return "\n".join(lines + [f"  {name:<13}{value}" for name, value in rows.items()])


def exposure(settings: Settings) -> str:
    from corral.settings import is_loopback

    if is_loopback(settings.host):
        return "nothing beyond this machine"
    how = "with TLS" if settings.ssl_cert_path else "IN PLAIN TEXT"
    where = "every address" if settings.host in _ANYWHERE else settings.host
    return f"port {settings.port} on {where}, {how}, with keys"
