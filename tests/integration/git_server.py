"""A Git server that speaks HTTPS and asks for a password, on Git's own backend."""

from __future__ import annotations

import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

PATIENCE_S = 30.0


@dataclass(slots=True)
class Seen:
    """What came in, and how every process of the machine was called meanwhile."""

    wanted: str = ""
    send_to: str = ""
    authorizations: list[str | None] = field(default_factory=list)
    arguments: set[str] = field(default_factory=set)


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for localhost that only its own holder trusts."""
    certificate, key = folder / "tls.pem", folder / "tls.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command, *files, *name], check=True, capture_output=True)
    return certificate, key


@contextmanager
def serve(root: Path, certificate: Path, key: Path, seen: Seen) -> Iterator[str]:
    """Serve the repositories in `root`; yields the host with its port."""

    class Handler(_Handler):
        folder, notes = root, seen

    server = ThreadingHTTPServer(("localhost", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"localhost:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    folder: Path
    notes: Seen

    def do_GET(self) -> None:
        given = self.headers.get("Authorization")
        self.notes.authorizations.append(given)
        for process in psutil.process_iter(["cmdline"]):
            self.notes.arguments.update(process.info["cmdline"] or ())
        if self.notes.send_to:
            self._say(302, Location=self.notes.send_to + self.path)
        elif self.notes.wanted and given != self.notes.wanted:
            self._say(401, **{"WWW-Authenticate": 'Basic realm="git"'})
        else:
            self._answer()

    do_POST = do_GET  # noqa: N815 the base class calls it so

    def _say(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        size = int(self.headers.get("Content-Length") or 0)
        done = subprocess.run(
            ["git", "http-backend"],
            input=self.rfile.read(size),
            env={
                "PATH": os.environ["PATH"],
                "GIT_CONFIG_GLOBAL": os.devnull,
                "GIT_PROJECT_ROOT": str(self.folder),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "PATH_INFO": parts.path,
                "QUERY_STRING": parts.query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(size),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            },
            check=True,
            capture_output=True,
            timeout=PATIENCE_S,
        )
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(lines.pop("Status", "200").split()[0]))
        for name, value in lines.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing: a test says what it needs of the requests."""
