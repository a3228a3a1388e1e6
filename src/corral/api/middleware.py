"""What every request passes first: an id, the body limit, safe answer headers; and
last: its figures, and its line in the log.

A plain ASGI layer, so that it costs microseconds. It knows nothing of routes: figures
go by the route that was found, never by the path, which anybody may choose.
"""

from __future__ import annotations

import logging
import uuid
from asyncio import CancelledError, current_task
from collections.abc import Iterable, Iterator
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from corral.core.tasks.options import Trace, read_trace
from corral.errors import TooLarge
from corral.log_line import bound
from corral.manager.prometheus import Counter, Histogram, MetricFamily

log = logging.getLogger(__name__)
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
_NOWHERE = "none"
_MOST_ROUTES = 500
# Requests may wait a minute for a task, and streams last longer.
_BUCKETS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
_LEFT = 499
OPEN = "corral_open"
"""Where the scope of a request has what ends it with its key."""
_PARENT = b"traceparent"
SAFE: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'"),
)


class Edge:
    """Wraps the application; `body_limit` is in bytes."""

    def __init__(
        self,
        app: ASGIApp,
        body_limit: int,
        meter: HttpMeter | None = None,
        revoked: ASGIApp | None = None,
    ) -> None:
        self._app = app
        self._limit = body_limit
        self._meter = meter or HttpMeter()
        self._revoked = revoked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, is_started = perf_counter(), 500, False
        trace = scope["corral_trace"] = trace_of(scope)
        request_id = scope["corral_request_id"] = trace.request_id
        extra: list[tuple[bytes, bytes]] = []
        scope["corral_headers"] = extra
        head = (b"x-request-id", request_id.encode())

        async def send_safely(message: Message) -> None:
            nonlocal status, is_started
            if message["type"] == "http.response.start":
                status, is_started = message["status"], True
                if (opened := scope.get(OPEN)) is not None:
                    opened.wait()
                safe = scope.get("corral_safe", SAFE)
                message["headers"] = [*message["headers"], head, *safe, *extra]
            await send(message)

        token = bound.set({"request_id": request_id})
        try:
            await self._app(scope, self._limited(scope, receive), send_safely)
        except CancelledError:
            if not _was_ended(scope):
                status = _LEFT
                raise
            if is_started:
                # A stream ends without its last word; who follows asks again, and is
                # told why not.
                await send({"type": "http.response.body", "body": b""})
            elif self._revoked is not None:
                await self._revoked(scope, receive, send_safely)
        finally:
            if (opened := scope.pop(OPEN, None)) is not None:
                opened.over()
            self._tell(scope, status, perf_counter() - began)
            bound.reset(token)

    def _tell(self, scope: Scope, status: int, took_s: float) -> None:
        self._meter.add(scope, status, took_s)
        if log.isEnabledFor(logging.DEBUG):
            told = {
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "duration_s": round(took_s, 6),
            }
            log.debug("http_request", extra=told)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        said = _header(scope["headers"], b"content-length") or b""
        is_too_large = said.isdigit() and int(said) > self._limit
        size = 0

        async def receive_within_limit() -> Message:
            nonlocal size
            if is_too_large:
                raise self._too_large()
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._limit:
                raise self._too_large()
            return message

        return receive_within_limit

    def _too_large(self) -> TooLarge:
        return TooLarge(
            f"the body is larger than {self._limit} bytes; send less at once",
            limit_bytes=self._limit,
        )


def _was_ended(scope: Scope) -> bool:
    """Was it we who broke this request off, because its key is void?"""
    opened, task = scope.get(OPEN), current_task()
    if opened is None or not opened.is_ended or task is None:
        return False
    task.uncancel()
    return True


class HttpMeter:
    """One for an application."""

    def __init__(self) -> None:
        self._requests = Counter(
            "http_requests_total",
            "Requests answered.",
            ("endpoint", "method", "status"),
            _MOST_ROUTES,
        )
        self._seconds = Histogram(
            "http_request_duration_seconds",
            "From the head of a request to the end of its answer.",
            ("endpoint", "method"),
            _BUCKETS,
            _MOST_ROUTES,
        )

    def add(self, scope: Scope, status: int, took_s: float) -> None:
        """`scope` is that of a request the application has answered."""
        endpoint = getattr(scope.get("route"), "path", _NOWHERE)
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._requests.add(endpoint, method, str(status))
        self._seconds.add(took_s, endpoint, method)

    def families(self) -> Iterator[MetricFamily]:
        yield self._requests
        yield self._seconds


def trace_of(scope: Scope) -> Trace:
    """What the caller calls this request; else an id that is made here."""
    given = (_header(scope["headers"], name) for name in (b"x-request-id", _PARENT))
    told = (text.decode("latin-1") if text else None for text in given)
    return read_trace(*told) or Trace(uuid.uuid4().hex)


def _header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    return next((value for key, value in headers if key == name), None)
