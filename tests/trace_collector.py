"""A small OTLP collector on a real socket: POST /v1/traces in JSON, as the protocol
has it, and strict about that."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
_NANOS = re.compile(r"[1-9]\d{17,19}")


@dataclass(frozen=True)
class SeenEvent:
    name: str
    at: int
    facts: Json


@dataclass(frozen=True)
class Seen:
    """A span as it came; times are in nanoseconds."""

    trace_id: str
    id: str
    parent_id: str
    name: str
    kind: int
    begin: int
    end: int
    facts: Json
    events: tuple[SeenEvent, ...]
    status: int
    message: str
    service: str

    @property
    def seconds(self) -> float:
        return (self.end - self.begin) / 1e9


class Collector:
    """Keeps the spans it is sent, unless `status` says otherwise."""

    def __init__(self) -> None:
        self.spans: list[Seen] = []
        self.faults: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.requests = 0
        self.status = 200
        self._news = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                collector._take(self)

            def log_message(self, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,)).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _take(self, call: BaseHTTPRequestHandler) -> None:
        body = call.rfile.read(int(call.headers["content-length"]))
        status = self.status
        with self._news:
            self.requests += 1
            self.headers.append({k.lower(): v for k, v in call.headers.items()})
            if status == 200:
                try:
                    self.spans += _decode(call.path, self.headers[-1], body)
                except (AssertionError, KeyError, ValueError) as fault:
                    status = 400
                    self.faults.append(repr(fault))
            self._news.notify_all()
        answer = b'{"partialSuccess":{}}'
        call.send_response(status)
        call.send_header("content-type", "application/json")
        call.send_header("content-length", str(len(answer)))
        call.end_headers()
        call.wfile.write(answer)

    def wait_for(self, count: int, timeout_s: float = 60.0) -> list[Seen]:
        """The spans, once there are so many."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.spans) >= count, timeout_s)
            return list(self.spans)

    def named(self, name: str) -> list[Seen]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> Seen:
        (span,) = self.named(name)
        return span


@contextmanager
def trace_collector() -> Iterator[Collector]:
    made = Collector()
    try:
        yield made
    finally:
        made.stop()
    assert not made.faults


def _decode(path: str, headers: dict[str, str], body: bytes) -> list[Seen]:
    assert path == "/v1/traces", path
    assert headers["content-type"] == "application/json"
    told = _only(json.loads(body), "resourceSpans")
    found: list[Seen] = []
    for part in told["resourceSpans"]:
        _only(part, "resource", "scopeSpans")
        service = _facts(_only(part["resource"], "attributes"))["service.name"]
        for scoped in part["scopeSpans"]:
            _only(scoped, "scope", "spans")
            assert _only(scoped["scope"], "name", "version")["name"] == "corral"
            found += [_span(row, service) for row in scoped["spans"]]
    assert found
    return found


_REQUIRED = (
    "traceId",
    "spanId",
    "name",
    "kind",
    "startTimeUnixNano",
    "endTimeUnixNano",
)


def _span(row: Json, service: str) -> Seen:
    _only(row, *_REQUIRED, "parentSpanId", "attributes", "events", "status")
    status = _only(row.get("status", {}), "code", "message")
    assert row["kind"] in range(1, 6)
    seen = Seen(
        _hex(row["traceId"], 32),
        _hex(row["spanId"], 16),
        _hex(row["parentSpanId"], 16) if "parentSpanId" in row else "",
        row["name"],
        row["kind"],
        _nanos(row["startTimeUnixNano"]),
        _nanos(row["endTimeUnixNano"]),
        _facts(row),
        tuple(_event(each) for each in row.get("events", [])),
        status.get("code", 0),
        status.get("message", ""),
        service,
    )
    assert seen.begin <= seen.end, seen
    return seen


def _event(row: Json) -> SeenEvent:
    _only(row, "timeUnixNano", "name", "attributes")
    return SeenEvent(row["name"], _nanos(row["timeUnixNano"]), _facts(row))


def _facts(row: Json) -> Json:
    found: Json = {}
    for pair in row.get("attributes", []):
        _only(pair, "key", "value")
        ((kind, value),) = pair["value"].items()
        assert isinstance(value, str)
        assert kind in ("stringValue", "intValue"), kind
        assert pair["key"] not in found
        found[pair["key"]] = int(value) if kind == "intValue" else value
    return found


def _only(row: Json, *names: str) -> Json:
    assert isinstance(row, dict)
    assert set(row) <= set(names), row
    return row


def _hex(text: str, length: int) -> str:
    assert re.fullmatch(rf"(?!0+$)[0-9a-f]{{{length}}}", text), text
    return text


def _nanos(text: str) -> int:
    assert _NANOS.fullmatch(text), text
    return int(text)
