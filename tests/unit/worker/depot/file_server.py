"""A small real HTTP server that has models: bills, files with ranges, and objects.

It can break off in the middle, forget ranges, and send other bytes than it should.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

WORKER = "w-0123456789"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class FileServer:
    """Thread-safe. What it has is in `models`; how it misbehaves, tests decide."""

    def __init__(self) -> None:
        self.models: dict[str, dict[str, bytes]] = {}
        self.objects: dict[str, bytes] = {}
        self.facts: dict[str, dict[str, Any]] = {}
        self.bills: list[dict[str, Any]] = []
        """Answered first, one by one, whatever was asked for."""
        self.status = 200
        self.file_status = 200
        self.knows_ranges = True
        self.break_after: list[int] = []
        """After so many bytes one answer breaks off, for each of these."""
        self.lies: dict[str, bytes] = {}
        self.asked: Counter[str] = Counter()
        self.starts: list[int] = []
        self.keys: set[str] = set()
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"server_of": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def add(self, name: str, files: dict[str, bytes], **facts: Any) -> None:
        self.models[name] = files
        self.facts[name] = facts

    def bill(self, name: str) -> dict[str, Any]:
        facts = dict(self.facts[name])
        more = facts.pop("rows", {})
        rows = [
            {"name": n, "size": len(data), "sha256": sha256(data), **more.get(n, {})}
            for n, data in sorted(self.models[name].items())
        ]
        return {"name": name, "status": "ready", "files": rows, **facts}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of: FileServer

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        world, path = self.server_of, unquote(self.path)
        with world.lock:
            world.asked[path] += 1
            world.keys.add(self.headers.get("Authorization", ""))
        found = re.fullmatch(rf"/workers/{WORKER}/models/([^/]+)(?:/files/(.+))?", path)
        if path.startswith("/objects/"):
            self._send(world.objects.get(path.rpartition("/")[2]))
        elif found and found[2]:
            self._send_file(found[1], found[2])
        elif path.startswith("/mirror/"):
            self._send_file(*path.removeprefix("/mirror/").split("/", 1))
        elif found:
            self._send_bill(found[1])
        else:
            self._send(None)

    def _send_bill(self, name: str) -> None:
        world = self.server_of
        with world.lock:
            told = world.bills.pop(0) if world.bills else None
        if world.status != 200:
            self._fault(world.status, "the model manager does not answer")
        elif told is None and name not in world.models:
            self._send(None)
        else:
            self._send(json.dumps(told or world.bill(name)).encode())

    def _send_file(self, model: str, name: str) -> None:
        world = self.server_of
        if world.file_status != 200:
            self._fault(world.file_status, "not now")
            return
        data = world.lies.get(name, world.models[model][name])
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(match[1]) if match and world.knows_ranges else 0
        with world.lock:
            world.starts.append(int(match[1]) if match else 0)
            limit = world.break_after.pop(0) if world.break_after else None
        self.send_response(206 if match and world.knows_ranges else 200)
        self.send_header("Content-Length", str(len(data) - start))
        if start:
            told = f"bytes {start}-{len(data) - 1}/{len(data)}"
            self.send_header("Content-Range", told)
        self.end_headers()
        self.wfile.write(data[start:][:limit])
        if limit is not None:
            self.close_connection = True

    def _send(self, body: bytes | None) -> None:
        if body is None:
            self._fault(404, "not there")
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _fault(self, status: int, message: str) -> None:
        body = json.dumps({"error": {"message": message}}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
