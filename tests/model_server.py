"""Small real servers of models: a hub, and a model manager, as documented."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Json = dict[str, Any]
COMMIT = "5" * 40


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class _Server:
    """Answers on a real socket; `stop` and `start` keep the port."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.key: str | None = None
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        handler = type("Handler", (_Handler,), {"world": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), handler)
        self._port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, method: str, path: str, query: Json, body: Json) -> Any:
        """JSON, bytes, or a status alone."""
        raise NotImplementedError


class _Handler(BaseHTTPRequestHandler):
    world: _Server

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size) or b"{}")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        path = unquote(parts.path)
        self.world.asked.append((self.command, path))
        self.world.key = self.headers.get("Authorization")
        told = self.world.answer(self.command, path, query, body)
        status, data = (told, b"{}") if isinstance(told, int) else (200, told)
        data = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Hub(_Server):
    """Repositories by name; files that end with .safetensors are large ones there."""

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, bytes]] = {}
        self.token: str | None = None
        super().__init__()

    def answer(self, method: str, path: str, query: Json, body: Json) -> Any:
        if self.token is not None and self.key != f"Bearer {self.token}":
            return 401
        info = re.fullmatch(r"/api/models/(.+)/revision/(main|5{40})", path)
        if info and info[1] in self.repos:
            rows = [self._row(*item) for item in self.repos[info[1]].items()]
            return {"sha": COMMIT, "pipeline_tag": "text-generation", "siblings": rows}
        file = re.fullmatch(rf"/(.+)/resolve/{COMMIT}/(.+)", path)
        if file and file[2] in self.repos.get(file[1], {}):
            return self.repos[file[1]][file[2]]
        return 404

    def _row(self, name: str, data: bytes) -> Json:
        row: Json = {"rfilename": name, "size": len(data), "blobId": "0" * 40}
        if name.endswith(".safetensors"):
            row["lfs"] = {"sha256": sha256(data), "size": len(data)}
        return row


class ModelManager(_Server):
    """Models and workers as its documents list them; no answer has a path in it."""

    def __init__(self) -> None:
        self.models: dict[str, Json] = {}
        self.workers: dict[str, Json] = {}
        self.assigned: list[tuple[str, str]] = []
        self.downloading = threading.Event()
        super().__init__()

    def add(self, name: str, **facts: Any) -> None:
        entry: Json = {"id": f"id-{len(self.models)}", "name": name, "type": "llm"}
        entry |= {"size_gb": 0.5, "status": "available", "tags": ["theirs"], **facts}
        self.models[entry["id"]] = entry

    def answer(self, method: str, path: str, query: Json, body: Json) -> Any:
        if (method, path) == ("GET", "/models/"):
            text = query.get("search", "")
            found = [m for m in self.models.values() if text in m["name"]]
            page, size = int(query.get("page", 1)), int(query.get("page_size", 20))
            rows = found[(page - 1) * size : page * size]
            told = {"page": page, "page_size": size}
            return {"models": rows, "total": len(found), **told}
        if (method, path) == ("POST", "/models/download"):
            self.models[body["model_id"]]["status"] = "downloading"
            self.downloading.set()
            return {"id": body["model_id"]}
        if (method, path) == ("POST", "/workers/"):
            self.workers[body["id"]] = body
            return body
        found_id = re.fullmatch(r"/models/([^/]+)/([a-z-]+)", path)
        return self._verb(found_id[1], found_id[2], body) if found_id else 404

    def _verb(self, model_id: str, verb: str, body: Json) -> Any:
        if verb == "download-progress":
            return {"progress": 40}
        if verb == "unassign":
            return 500
        if verb != "assign" or body["worker_id"] not in self.workers:
            return 404
        self.assigned.append((self.models[model_id]["name"], body["worker_id"]))
        return {"status": "assigned"}


@contextmanager
def serving(server: Any) -> Iterator[Any]:
    """Stopped in the end, whether it was before or not."""
    try:
        yield server
    finally:
        server.stop()
