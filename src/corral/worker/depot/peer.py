"""Gives this node's model files to other nodes: `python -m corral.worker.depot.peer`.

Started by the agent where that is allowed. Only files that were checked when they came
are given, by their SHA-256, to whoever shows the manager's signature for that file.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO
from urllib.parse import parse_qs, urlsplit

import msgspec

from corral.core.nodes.peer import is_signed
from corral.worker.depot.manifest import has_size
from corral.worker.depot.model_folder import Depot

LOOK_S = 1.0
AT_ONCE = 8
"""Who comes beside so many is sent elsewhere: a node has other things to do."""
STALL_S = 30.0
_PATH = re.compile(r"/files/([0-9a-f]{64})")
_RANGE = re.compile(r"bytes=(\d{1,18})-")


class PeerConfig(msgspec.Struct):
    """What the agent says, in one line; port 0 is any that is free."""

    folder: str
    host: str
    port: int
    secret: str


class PeerOffer(msgspec.Struct):
    """What is said to the agent, a line each time it changes."""

    port: int
    models: dict[str, str]


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    size: int


class PeerModels:
    """What there is to give, by the node's notes. Safe to use from any thread."""

    def __init__(self, depot: Depot, secret: str) -> None:
        self._depot = depot
        self.secret = secret
        self._files: dict[str, _File] = {}
        self.turns = threading.BoundedSemaphore(AT_ONCE)

    def look(self) -> dict[str, str]:
        """The models that are here whole, and their marks."""
        models: dict[str, str] = {}
        files: dict[str, _File] = {}
        for note in self._depot.notes():
            if note.is_whole():
                models[note.bill.name] = note.bill.mark
                for file in note.bill.files:
                    path = Path(note.folder) / file.name
                    files[file.sha256] = _File(path, file.size)
        self._files = files
        return models

    def find(self, sha256: str) -> _File | None:
        found = self._files.get(sha256)
        return found if found and has_size(found.path, found.size) else None


class PeerHandler(BaseHTTPRequestHandler):
    """Answers one connection."""

    peer_models: PeerModels
    timeout = STALL_S
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        match = _PATH.fullmatch(parts.path)
        if match is None or not self._may_take(match[1], parts.query):
            self._refuse(HTTPStatus.FORBIDDEN)
            return
        file = self.peer_models.find(match[1])
        if file is None:
            self._refuse(HTTPStatus.NOT_FOUND)
        elif not self.peer_models.turns.acquire(blocking=False):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
        else:
            try:
                self._give(file)
            finally:
                self.peer_models.turns.release()

    def _may_take(self, sha256: str, query: str) -> bool:
        told = parse_qs(query)
        until, token = told.get("until", [""])[0], told.get("token", [""])[0]
        if not until.isascii() or not until.isdecimal() or len(until) > 12:
            return False
        if not is_signed(self.peer_models.secret, sha256, int(until), token):
            return False
        return time.time() < int(until)

    def _give(self, file: _File) -> None:
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        self.close_connection = True
        if start > file.size:
            self._refuse(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            return
        with file.path.open("rb") as stream:
            self.send_response(HTTPStatus.PARTIAL_CONTENT if asked else HTTPStatus.OK)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(file.size - start))
            if asked:
                told = f"bytes {start}-{file.size - 1}/{file.size}"
                self.send_header("Content-Range", told)
            self.end_headers()
            self.wfile.flush()
            # Who takes may go at any moment; he goes on elsewhere.
            with contextlib.suppress(OSError):
                stream.seek(start)
                self.connection.sendfile(stream, start, file.size - start or None)

    def _refuse(self, status: HTTPStatus) -> None:
        self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing: addresses have tokens in them."""


class PeerServer(ThreadingHTTPServer):
    daemon_threads = True
    address_family = 0

    def __init__(self, given: PeerConfig, peer_models: PeerModels) -> None:
        is_six = ":" in given.host
        self.address_family = socket.AF_INET6 if is_six else socket.AF_INET
        handler = type("PeerHandler", (PeerHandler,), {"peer_models": peer_models})
        super().__init__((given.host, given.port), handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that broke is the other side's affair."""


def serve(given: PeerConfig, words: IO[bytes], agent: IO[bytes]) -> None:
    """Give files until the agent is gone."""
    peer_models = PeerModels(Depot(Path(given.folder), 0), given.secret)
    models = peer_models.look()
    with PeerServer(given, peer_models) as server:
        port = int(server.server_address[1])
        threading.Thread(target=server.serve_forever, daemon=True).start()
        threading.Thread(target=_end_with, args=(agent,), daemon=True).start()
        said: dict[str, str] | None = None
        while True:
            if models != said:
                said = models
                words.write(msgspec.json.encode(PeerOffer(port, models)) + b"\n")
                words.flush()
            time.sleep(LOOK_S)
            models = peer_models.look()


def _end_with(agent: IO[bytes]) -> None:
    agent.read()
    os._exit(0)


def main() -> None:
    try:
        line = sys.stdin.buffer.readline()
        given = msgspec.json.decode(line, type=PeerConfig)
    except msgspec.MsgspecError as error:
        sys.exit(f"the agent's first line cannot be read: {error}")
    try:
        serve(given, sys.stdout.buffer, sys.stdin.buffer)
    except OSError as error:
        sys.exit(f"models cannot be given at {given.host}:{given.port}: {error}")


if __name__ == "__main__":
    main()
