"""A client that reads an answer while it is being made, and may hang up."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from fastapi import FastAPI

from tests.unit.api.world import Caller, quiet


class Listener:
    """One request under way; `body` is what has come so far."""

    def __init__(
        self,
        app: FastAPI,
        path: str,
        who: Caller,
        *,
        method: str = "GET",
        query: str = "",
        content: bytes = b"",
    ) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self._content: bytes | None = content
        self._gone, self._news = asyncio.Event(), asyncio.Event()
        headers = [(k.lower().encode(), v.encode()) for k, v in who.headers.items()]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("corral", 80),
            "scheme": "http",
        }
        self._run = asyncio.create_task(app(scope, self._receive, self._send))

    async def ended(self) -> None:
        await asyncio.wait_for(asyncio.shield(self._run), 60)

    async def hang_up(self) -> None:
        self._gone.set()
        with contextlib.suppress(Exception):
            await self.ended()
        await quiet()

    async def word(self) -> None:
        """Something more has come."""
        await self._news.wait()
        self._news.clear()

    async def _receive(self) -> dict[str, Any]:
        if self._content is not None:
            content, self._content = self._content, None
            return {"type": "http.request", "body": content, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        else:
            self.body += message.get("body", b"")
            self._news.set()
