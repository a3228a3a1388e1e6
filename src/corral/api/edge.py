"""What every request passes first: an id, the body limit, safe answer headers.

A plain ASGI layer, so that it costs microseconds and knows nothing of routes.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from corral.errors import TooLarge

_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
SAFE: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'"),
)


def _header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    return next((value for key, value in headers if key == name), None)


class Edge:
    """Wraps the application; `body_limit` is in bytes."""

    def __init__(self, app: ASGIApp, body_limit: int) -> None:
        self._app = app
        self._limit = body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = _header(scope["headers"], b"x-request-id")
        is_sane = given is not None and _ID.fullmatch(given)
        request_id = given.decode() if given and is_sane else uuid.uuid4().hex
        scope["corral_request_id"] = request_id
        extra: list[tuple[bytes, bytes]] = []
        scope["corral_headers"] = extra
        head = (b"x-request-id", request_id.encode())

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], head, *SAFE, *extra]
            await send(message)

        await self._app(scope, self._limited(scope, receive), send_safely)

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
