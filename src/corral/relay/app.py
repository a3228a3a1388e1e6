"""A port of the job API on a node or worker: a small web app that asks the manager.

It decides nothing: whoever calls shows a key, the key goes on to the manager, and what
the manager answers comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from corral.errors import Unreachable
from corral.relay.manager_link import HttpLink, LinkOptions
from corral.relay.port import MANAGER
from corral.trust import is_address, is_loopback_name, name_of_host
from corral.wire.job_api import CALL_PASS

BODY_LIMIT = 16 << 20
KEYLESS_LIMIT = 1 << 20
_TIMEOUT_S = 75.0
_PASSED = ("retry-after", "www-authenticate", "x-request-id")


@dataclass(frozen=True, slots=True)
class PortRequest:
    """One request to the port; `key` is what stood in its Authorization header, and
    `call_pass` what the manager's gateway may have put beside it.
    """

    name: str
    body: dict[str, Any]
    key: str | None = None
    call_pass: str | None = None


@dataclass(frozen=True, slots=True)
class PortAnswer:
    """An answer: ours, or one of the manager's to pass on as it is."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def is_good(self) -> bool:
        return self.status < 400

    def value(self) -> Any:
        return msgspec.json.decode(self.body)


Endpoint = Callable[[PortRequest], Awaitable[PortAnswer]]


def told(value: Any) -> PortAnswer:
    return PortAnswer(200, msgspec.json.encode(value))


def problem(status: int, code: str, message: str) -> PortAnswer:
    """Ours, in the one error shape."""
    error = {
        "code": code,
        "message": message,
        "details": {},
        "request_id": "",
        "timestamp": datetime.now(UTC),
    }
    return PortAnswer(status, msgspec.json.encode({"error": error}))


class RelayedManager:
    """The manager as a port reaches it: with the key of whoever called."""

    def __init__(self, url: str, ca_file: str | Path | None = None) -> None:
        self._link = HttpLink(url, None, ca_file, LinkOptions(timeout_s=_TIMEOUT_S))
        self.url = self._link.url

    async def post(
        self, path: str, body: Any, key: str | None, call_pass: str | None = None
    ) -> PortAnswer:
        """In a thread of its own that ends with this process: the manager may hold an
        answer back for a minute, and a pool's threads would hold up the end.
        """
        loop = asyncio.get_running_loop()
        came: asyncio.Future[PortAnswer] = loop.create_future()
        sent = msgspec.json.encode(body)
        shown = {"Authorization": key, CALL_PASS: call_pass}

        def ask() -> None:
            answer = problem(500, "error", "a fault inside this port")
            try:
                answer = self._ask(
                    path, sent, {n: v for n, v in shown.items() if v is not None}
                )
            finally:
                with contextlib.suppress(RuntimeError):  # the loop is closed: the end
                    loop.call_soon_threadsafe(_settle, came, answer)

        threading.Thread(target=ask, name="port-call", daemon=True).start()
        return await came

    def _ask(self, path: str, body: bytes, shown: dict[str, str]) -> PortAnswer:
        try:
            answer = self._link.ask("POST", path, body, headers=shown)
        except Unreachable as error:
            return problem(503, error.code, error.message)
        given = answer.headers
        kept = tuple((name, given[name]) for name in _PASSED if name in given)
        return PortAnswer(answer.status, answer.body, kept)


def _settle(came: asyncio.Future[PortAnswer], answer: PortAnswer) -> None:
    if not came.done():  # its caller may have left
        came.set_result(answer)


class Relay(Starlette):
    """The app: POST /name for each endpoint, and for those every service has.

    Args:
        manager: Who decides.
        class_name: What this service says it is.
        server_id: Called for the id it says it has.
        endpoints: What it can do beside answering about itself.
        url: Where it is.
    """

    def __init__(
        self,
        manager: RelayedManager,
        class_name: str,
        server_id: Callable[[], str],
        endpoints: dict[str, Endpoint],
        url: str = "",
    ) -> None:
        self.manager = manager
        self._host = urlsplit(url).hostname or ""
        self._pending = 0
        self._is_idle = threading.Event()
        self._is_idle.set()
        self._class_name = class_name
        self._server_id = server_id
        self._endpoints: dict[str, Endpoint] = {
            "endpoints": self._if_known(lambda: {"endpoints": self._names()}),
            "status": self._if_known(lambda: {"status": "Available"}),
            "heartbeat": self._if_known(self._heartbeat),
            "server_id": self._if_known(lambda: {"server_id": server_id()}),
            "class_name": self._if_known(lambda: {"class_name": class_name}),
            "pid_file": self._if_known(lambda: {"pid_file": None}),
            "mcp-server/mcp": self._pass_on,
            **endpoints,
        }
        calls = [
            Route(f"/{name}", self._route(name, endpoint), methods=["POST"])
            for name, endpoint in self._endpoints.items()
        ]
        super().__init__(
            routes=[Route("/health", self._health), *calls],
            exception_handlers={HTTPException: self._refuse, ClientDisconnect: _leave},
        )

    def _heartbeat(self) -> dict[str, Any]:
        beat = {
            "status": "Available",
            "server_id": self._server_id(),
            "message": "all is well",
            "details": {"class_name": self._class_name},
        }
        return {"heartbeat": beat}

    def _names(self) -> list[str]:
        return sorted(name for name in self._endpoints if "/" not in name)

    async def _pass_on(self, call: PortRequest) -> PortAnswer:
        return await self.manager.post(f"/{call.name}", call.body, call.key)

    async def check(self, call: PortRequest) -> PortAnswer:
        """Does the manager know whoever calls? Its answer, good or not."""
        return await self.manager.post("/status", {}, call.key)

    def _if_known(self, make: Callable[[], Any]) -> Endpoint:
        """An answer of our own, for whoever may read."""

        async def endpoint(call: PortRequest) -> PortAnswer:
            answer = await self.check(call)
            return told(make()) if answer.is_good else answer

        return endpoint

    def _page_fault(self, request: Request) -> PortAnswer | None:
        """No page of ours is here, and a browser sends requests for any that wants it
        to: where the manager asks for no keys, that would be enough.

        Programs send neither header; the manager's gateway passes both on, with a
        token no page has.
        """
        headers = request.headers
        if "origin" not in headers and headers.get("sec-fetch-site", "none") == "none":
            return None
        name = name_of_host(headers.get("host", ""))
        is_ours = is_loopback_name(name) or is_address(name) or name == self._host
        if is_ours and "authorization" in headers:
            return None
        return problem(403, "forbidden", "no page may ask this port: send a key")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._pending += 1
        self._is_idle.clear()
        # A slash too many names the same endpoint.
        scope["path"] = f"/{scope['path'].strip('/')}"
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pending -= 1
            if not self._pending:
                self._is_idle.set()

    def drain(self, timeout_s: float) -> None:
        """From another thread: let callers have their answers before the end."""
        self._is_idle.wait(timeout_s)

    def _route(
        self, name: str, endpoint: Endpoint
    ) -> Callable[[Request], Awaitable[Response]]:
        async def route(request: Request) -> Response:
            if fault := self._page_fault(request):
                return self._say(fault)
            body = bytearray()
            has_key = "authorization" in request.headers
            limit = BODY_LIMIT if has_key else KEYLESS_LIMIT
            async for part in request.stream():
                body += part
                if len(body) > limit:
                    text = f"at most {limit} bytes are taken"
                    text += "" if has_key else ", more with a key"
                    return self._say(problem(413, "too_large", text))
            try:
                said = msgspec.json.decode(body or b"{}", type=dict[str, Any])
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                text = f"the body is no JSON object: {error}"
                return self._say(problem(400, "invalid_json", text))
            key, word = (request.headers.get(n) for n in ("authorization", CALL_PASS))
            return self._say(await endpoint(PortRequest(name, said, key, word)))

        return route

    async def _health(self, request: Request) -> Response:
        """As the manager's own, for whoever looks for a port.

        It says nothing of what is behind it.
        """
        return self._say(told({"status": "healthy"}))

    async def _refuse(self, request: Request, error: Exception) -> Response:
        name = request.url.path.strip("/")
        if name in self._endpoints:
            return self._say(
                problem(405, "method_not_allowed", "every endpoint is POST")
            )
        return self._say(problem(404, "not_found", f"no endpoint {name[:100]!r} here"))

    def _say(self, answer: PortAnswer) -> Response:
        headers = {
            "x-content-type-options": "nosniff",
            # Where keys for this port are given out: a caller on this machine finds
            # its own by it.
            MANAGER: self.manager.url,
            **dict(answer.headers),
        }
        return Response(answer.body, answer.status, headers, "application/json")


async def _leave(request: Request, error: Exception) -> Response:
    """Nobody waits for an answer any more."""
    return Response(status_code=400)
