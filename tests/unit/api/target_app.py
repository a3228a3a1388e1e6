"""A real HTTP service for the gateway to forward to, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


@dataclass(slots=True)
class Target:
    """The service; `go` lets its waiting answers go on, `seen` is what it was sent."""

    port: int = 0
    seen: list[dict[str, Any]] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def forget(self) -> None:
        """For the next test: what still waits goes on, and nothing was sent yet."""
        self.go.set()
        self.seen = []
        self.arrived, self.go = threading.Event(), threading.Event()

    async def echo(self, request: Request) -> Response:
        body = await request.body()
        said = {
            "method": request.method,
            "path": request.scope["raw_path"].decode(),
            "query": request.scope["query_string"].decode(),
            "headers": dict(request.headers),
            "body": body.decode("latin-1"),
        }
        self.seen.append(said)
        headers = {"X-Answer": "yes", "Set-Cookie": "a=b", "Connection": "x-hop"}
        return JSONResponse(said, headers={**headers, "X-Hop": "1"})

    async def run(self, request: Request) -> Response:
        self.seen.append({"headers": dict(request.headers)})
        payload = await request.json()
        return JSONResponse({"doubled": payload["n"] * 2})

    async def hold(self, request: Request) -> Response:
        """Answers when told to."""
        self.arrived.set()
        await asyncio.to_thread(self.go.wait, 60)
        return JSONResponse({"held": True})

    async def nap(self, request: Request) -> Response:
        await asyncio.sleep(0.05)
        return JSONResponse({})

    async def parts(self, request: Request) -> Response:
        """The first part at once, the second when told to."""

        async def body() -> AsyncIterator[bytes]:
            yield b"first,"
            self.arrived.set()
            await asyncio.to_thread(self.go.wait, 60)
            yield b"second"

        return StreamingResponse(body(), media_type="text/plain")

    async def swallow(self, request: Request) -> Response:
        """How much came, noticing the first part as it comes."""
        size = 0
        async for part in request.stream():
            size += len(part)
            self.arrived.set()
        return JSONResponse({"size": size})

    async def away(self, request: Request) -> Response:
        return Response(status_code=307, headers={"Location": "http://169.254.169.254"})

    async def broken(self, request: Request) -> Response:
        return Response("no such model", status_code=500)

    async def text(self, request: Request) -> Response:
        return Response("plain words", media_type="text/plain")


def _application(target: Target) -> Starlette:
    names = ("run", "hold", "nap", "parts", "swallow", "away", "broken", "text")
    routes = [Route(f"/{n}", getattr(target, n), methods=METHODS) for n in names]
    rest = Route("/{path:path}", target.echo, methods=METHODS)
    return Starlette(routes=[*routes, rest])


@contextmanager
def serving() -> Iterator[Target]:
    """A target that answers until the block ends."""
    target = Target()
    started = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            started.set()

    config = uvicorn.Config(
        _application(target), host="127.0.0.1", port=0, log_config=None, lifespan="off"
    )
    server = Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert started.wait(60)
        target.port = server.servers[0].sockets[0].getsockname()[1]
        yield target
    finally:
        target.go.set()
        server.should_exit = True
        thread.join(60)
