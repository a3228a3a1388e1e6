"""A small real HTTP server in the manager's place: registers, takes reports, answers.

What it is told is kept; what it answers, the test decides.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from msgspec import Raw

from corral.engine.envelope import signed_order
from corral.wire.orders import Item, Order

SECRET = "00ff" * 16
INCARNATION = "i-1"
NODE, WORKER = "n-1", "w-1"
QUEUE = f"w.{NODE}.{WORKER}"


def make_order(
    *items: Item,
    order_id: str = "o-1",
    incarnation: str = INCARNATION,
    secret: str = SECRET,
) -> dict[str, str]:
    order = Order(order_id, WORKER, incarnation, list(items))
    return signed_order(order, secret)


def order_item(task_id: str, payload: Any, **more: Any) -> Item:
    attempt = more.pop("attempt", 1)
    return Item(task_id, attempt, Raw(json.dumps(payload).encode()), "test", **more)


class StandInManager:
    """Thread-safe. `next_orders` go out one by one to reports that want one."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.reports: list[dict[str, Any]] = []
        self.registrations: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.repeats = 0
        self.next_orders: list[dict[str, str]] = []
        self.drops: list[list[Any]] = []
        self.statuses: list[int] = []
        self.refuse: Callable[[dict[str, Any]], int | None] = lambda _: None
        self._answers: dict[str, bytes] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def outcomes(self) -> dict[tuple[str, int], dict[str, Any]]:
        """Every outcome told so far; one told twice fails the test."""
        told: dict[tuple[str, int], dict[str, Any]] = {}
        for report in self.reports:
            for outcome in report["outcomes"]:
                key = (outcome["task_id"], outcome["attempt"])
                assert key not in told, f"{key} was reported twice"
                told[key] = outcome
        return told

    def wait_for(self, what: Callable[[], Any], timeout_s: float = 60.0) -> Any:
        """Block until `what` gives something true; give it back."""
        found: list[Any] = []

        def look() -> bool:
            found[:] = [what()]
            return bool(found[0])

        with self.changed:
            assert self.changed.wait_for(look, timeout_s), (
                f"not within {timeout_s} s; reports: {self.reports[-5:]}"
            )
        return found[0]

    def wait_outcome(self, task_id: str, attempt: int = 1) -> dict[str, Any]:
        key = (task_id, attempt)
        found: dict[str, Any] = self.wait_for(lambda: self.outcomes().get(key))
        return found

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        with self.changed:
            try:
                return self._answer(path, body)
            finally:
                self.changed.notify_all()

    def _answer(self, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        if self.statuses:
            return self.statuses.pop(0), b'{"error": {"message": "as the test said"}}'
        if path == f"/workers/{WORKER}/register":
            self.registrations.append(body)
            told = {
                "incarnation": INCARNATION,
                "secret": SECRET,
                "queue": QUEUE,
                "concurrency": 1,
                "job_types": ["test"],
            }
            return 200, json.dumps(told).encode()
        assert path == f"/workers/{WORKER}/reports", path
        if (status := self.refuse(body)) is not None:
            return status, b'{"error": {"message": "refused by the test"}}'
        if (known := self._answers.get(body["report_id"])) is not None:
            self.repeats += 1
            return 200, known
        self.reports.append(body)
        order = self.next_orders.pop(0) if self._may_order(body) else None
        answer = json.dumps({"order": order, "drop": self.drops}).encode()
        self._answers[body["report_id"]] = answer
        return 200, answer

    def _may_order(self, body: dict[str, Any]) -> bool:
        return bool(body["wants_order"] and self.next_orders)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        manager = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                manager.keys.append(self.headers["Authorization"])
                status, answer = manager.answer(self.path, json.loads(raw))
                if status == 0:  # the test wants the answer to get lost
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                """Keep quiet."""

        return Handler
