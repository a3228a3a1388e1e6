"""A small task service on a real socket: PATCH /tasks/{id}/status, as documented."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
_PATH = re.compile(r"/api/tasks/([^/]+)/status")


class TaskServiceStandIn:
    """Keeps what it is told; `answer` decides the status of each call.

    `start` and `stop` may follow each other: the port stays.
    """

    def __init__(self) -> None:
        self.told: list[tuple[str, Json]] = []
        self.calls: list[tuple[str, int]] = []
        self.keys: set[str | None] = set()
        self.answer: Callable[[str], int] = lambda task_id: 200
        self.gate = threading.Event()
        self.gate.set()
        self.most_at_once = 0
        self._at_once = 0
        self._news = threading.Condition()
        self._port = 0
        self._server: ThreadingHTTPServer | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/api"

    def start(self) -> None:
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_PATCH(self) -> None:
                service._take(self)

            def log_message(self, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            allow_reuse_address = True
            request_queue_size = 64
            daemon_threads = True
            block_on_close = False

        self._server = Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,)).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _take(self, call: BaseHTTPRequestHandler) -> None:
        body = call.rfile.read(int(call.headers.get("content-length") or 0))
        with self._news:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        self.gate.wait(30)
        found = _PATH.fullmatch(call.path)
        status = 404 if found is None or self._server is None else 0
        with self._news:
            self._at_once -= 1
            if found is not None and not status:
                status = self.answer(found[1])
                self._note(found[1], status, body)
                self.keys.add(call.headers.get("authorization"))
        call.send_response(status)
        call.send_header("content-length", "2")
        call.send_header("connection", "close")
        call.end_headers()
        call.wfile.write(b"{}")

    def _note(self, task_id: str, status: int, body: bytes) -> None:
        self.calls.append((task_id, status))
        if status < 300:
            self.told.append((task_id, json.loads(body)))
        self._news.notify_all()

    def statuses(self, task_id: str) -> list[str]:
        with self._news:
            return [body["status"] for id_, body in self.told if id_ == task_id]

    def last(self, task_id: str) -> Json:
        with self._news:
            return [body for id_, body in self.told if id_ == task_id][-1]

    def await_status(self, status: str, *task_ids: str, timeout_s: float = 60) -> None:
        """Until the last word on each of these tasks is `status`."""

        def is_so() -> bool:
            last = {id_: body["status"] for id_, body in self.told}
            return all(last.get(id_) == status for id_ in task_ids)

        with self._news:
            assert self._news.wait_for(is_so, timeout_s), self.told[-5:]


@contextmanager
def task_service() -> Iterator[TaskServiceStandIn]:
    service = TaskServiceStandIn()
    try:
        yield service
    finally:
        service.gate.set()
        service.stop()
