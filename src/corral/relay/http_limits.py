"""What a server takes of callers before anybody knows who they are.

How large the head of a request may be, how long it and the parts of a body may take to
come, and how many connections there are at once. The usual request comes at once and
whole: for it nothing is timed. What a caller may do is decided by the application.
"""

from __future__ import annotations

import json
from asyncio import TimerHandle, Transport
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import islice
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 64 << 10
# A caller too many is told so when it has asked: closed before, it would see a fault.
_TELL_S = 2.0
_LOOKED_AT = 200
_FILES = 1 << 16


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """`body_s` is for each part of a body."""

    connections: int = 10_000
    head_s: float = 20.0
    body_s: float = 120.0


@dataclass(frozen=True, slots=True)
class _Refusal:
    status: HTTPStatus
    code: str
    message: str
    retry_after_s: int | None = None

    def answer(self) -> bytes:
        error = {
            "code": self.code,
            "message": self.message,
            "details": {},
            "request_id": "",
            "timestamp": datetime.now(UTC).isoformat(),
        }
        body = json.dumps({"error": error}).encode()
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            "content-type: application/json",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
            f"content-length: {len(body)}",
            "connection: close",
        ]
        if self.retry_after_s is not None:
            lines.append(f"retry-after: {self.retry_after_s}")
        return "\r\n".join([*lines, "", ""]).encode() + body


_LARGE = _Refusal(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    "too_large",
    f"the head of a request may have {HEAD_BYTES} bytes",
)
_FULL = _Refusal(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "unavailable",
    "too many connections are open (CORRAL_MAX_CONNECTIONS)",
    5,
)
_SLOW_HEAD = _Refusal(
    HTTPStatus.REQUEST_TIMEOUT,
    "request_timeout",
    "the head of the request did not come in time (CORRAL_HEADER_TIMEOUT_S)",
)
_SLOW_BODY = _Refusal(
    HTTPStatus.REQUEST_TIMEOUT,
    "request_timeout",
    "the rest of the body did not come in time (CORRAL_BODY_TIMEOUT_S)",
)


class LimitedProtocol(HttpToolsProtocol):
    """One connection. `waiting` has those that have sent no head yet, oldest first."""

    bounds: ClassVar[HttpLimits]
    waiting: ClassVar[dict[LimitedProtocol, None]]

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Bytes since the last head or message was whole, and whether a head is next.
        self._fed = 0
        self._is_between = True
        self._refusal: _Refusal | None = None
        self._timer: TimerHandle | None = None
        self.waiting[self] = None
        wait_s = self.bounds.head_s
        if len(self.connections) > self.bounds.connections and not self._make_room():
            self._refusal = _FULL
            wait_s = min(wait_s, _TELL_S)
        self._arm(wait_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self.waiting.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._fed += len(data)
        super().data_received(data)
        if not self._is_between:
            self._disarm()
            self._arm(self.bounds.body_s)
        elif self._fed:  # a part of a head, or nothing at all
            if self._fed > HEAD_BYTES:
                self._refuse(_LARGE)
            elif self._timer is None:
                self._arm(self.bounds.head_s)

    # The parser calls these while data is received.
    def on_headers_complete(self) -> None:
        self._disarm()
        self.waiting.pop(self, None)
        if self._fed > HEAD_BYTES and self._head_bytes() > HEAD_BYTES:
            self._refusal = _LARGE
        if self._refusal is not None:
            raise ValueError("refused")  # ends the parser; see `send_400_response`
        self._fed = 0
        self._is_between = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._fed = 0
        self._is_between = True
        self._disarm()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        wrong = _Refusal(HTTPStatus.BAD_REQUEST, "bad_request", "this is no HTTP")
        self._is_between, self._fed = True, 0
        self._refuse(self._refusal or wrong)

    # limits --------------------------------------------------------------------
    @property
    def _is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(n) + len(v) + 4 for n, v in self.headers)

    def _make_room(self) -> bool:
        """End a connection that nobody uses: strangers that hold many must not keep
        others out. False when all are in use.
        """
        oldest = next(iter(self.waiting))
        if oldest is not self:
            oldest.transport.abort()
            self.waiting.pop(oldest)
            return True
        for other in islice(self.connections, _LOOKED_AT):
            # Between two requests, on a connection that was kept.
            if getattr(other, "timeout_keep_alive_task", None) is not None:
                other.transport.abort()
                return True
        return False

    def _arm(self, wait_s: float) -> None:
        # The connection may be a WebSocket's by now, or over.
        if not self.transport.is_closing() and self.transport.get_protocol() is self:
            self._timer = self.loop.call_later(wait_s, self._expire)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        is_asked = self._is_busy and self.cycle.waiting_for_100_continue
        is_ours = self._is_busy if self._is_between else self.flow.read_paused
        if (is_ours or is_asked) and not self.transport.is_closing():
            # The application has not read what came, has not asked for it (a caller
            # may wait for that), or has not answered yet.
            self._arm(self.bounds.body_s)
        elif self._is_between and not self._fed:
            self.transport.close()
        else:
            self._refuse(_SLOW_HEAD if self._is_between else _SLOW_BODY)

    def _refuse(self, refusal: _Refusal) -> None:
        self._disarm()
        if self._is_busy and self.cycle.response_started:
            self.transport.abort()  # too late for another answer
        elif not self.transport.is_closing():
            self.transport.write(refusal.answer())
            self.transport.close()


def limited_protocol(limits: HttpLimits) -> type[LimitedProtocol]:
    """The connections of one server, for its `uvicorn.Config`."""

    class Limited(LimitedProtocol):
        bounds = limits
        waiting: ClassVar[dict[LimitedProtocol, None]] = {}

    return Limited


def file_limit() -> int:
    """How many files and connections this process may have open, as many as it can.

    The usual limit is a thousand, of which half a dozen clients are a part.
    """
    try:
        import resource
    except ImportError:  # Windows
        return _FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return wanted if soft == resource.RLIM_INFINITY else soft
