"""A manager that says what a test tells it to, over real HTTP on a real socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """What to say; with `is_drop` the connection closes without a word."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    is_drop: bool = False


DROP = Answer(is_drop=True)
Script = Answer | Callable[[Seen], Answer]


def fault(code: str, status: int, message: str = "no", **headers: str) -> Answer:
    error = {
        "code": code,
        "message": message,
        "details": {"field": "x"},
        "request_id": "req-1",
        "timestamp": "2026-01-01T00:00:00Z",
    }
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return Answer({"error": error}, status, named)


class StandIn:
    """Answers each call with its script; the last answer of a script repeats."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self._scripts: dict[str, list[Script]] = {}
        self._lock = threading.Lock()
        self.url = ""

    def on(self, call: str, *answers: Script | Any) -> None:
        """`call` reads `GET /path`; a plain value is the body of a 200."""
        self._scripts[call] = [
            a if isinstance(a, Answer) or callable(a) else Answer(a) for a in answers
        ]

    def asked(self, call: str) -> list[Seen]:
        return [seen for seen in self.seen if f"{seen.method} {seen.path}" == call]

    def answer(self, seen: Seen) -> Answer:
        with self._lock:
            self.seen.append(seen)
            script = self._scripts.get(f"{seen.method} {seen.path}")
            if not script:
                return fault("not_found", 404, f"nothing at {seen.path}")
            step = script.pop(0) if len(script) > 1 else script[0]
        return step if isinstance(step, Answer) else step(seen)


def _handler(stand_in: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            query = dict(parse_qsl(parts.query))
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen = Seen(self.command, parts.path, query, headers, body)
            answer = stand_in.answer(seen)
            if answer.is_drop:
                self.close_connection = True
                return
            raw = answer.body
            text = raw if isinstance(raw, bytes) else json.dumps(raw).encode()
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text)

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = _serve  # noqa: N815

        def log_message(self, *args: Any) -> None:
            """Tests look at `seen` instead."""

    return Handler


@contextmanager
def serve() -> Iterator[StandIn]:
    stand_in = StandIn()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(stand_in))
    server.daemon_threads = True
    stand_in.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield stand_in
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def task_out(
    task_id: str = "t1", status: str = "completed", **more: Any
) -> dict[str, Any]:
    """A TaskOut as the wire has it."""
    return {
        "task_id": task_id,
        "task_type": "echo",
        "status": status,
        "state": status,
        "priority": 0,
        "attempt": 1,
        "worker_id": "w1",
        "created_at": "2026-01-01T00:00:00Z",
        "started_at": None,
        "completed_at": None,
        "duration": 0.25,
        "result": {"echoed": "hi"} if status == "completed" else None,
        "error": None,
        "labels": {},
        "attempts": [],
        **more,
    }


def submitted(task_id: str = "t1") -> dict[str, Any]:
    return {
        "task_id": task_id,
        "status": "queued",
        "estimated_wait_time": 0.0,
        "assigned_worker": None,
        "created_at": "2026-01-01T00:00:00Z",
    }
