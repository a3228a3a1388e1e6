"""A manager for the agent's tests: answers as the wire page says, remembers all."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.acceptance.cluster import free_port

TOKEN = "corral_t1_token"
NODE = "node-1"


def refusal(status: int, code: str, message: str = "no", **details: object) -> Response:
    """As the manager writes it; without a code as a proxy does."""
    if not code:
        return Response("<html>", status)
    error = {"code": code, "message": message, "details": details}
    return JSONResponse({"error": error}, status)


@dataclass
class StandInManager:
    """Set what it should answer; wait on what it was told."""

    port: int = field(default_factory=free_port)
    token: str = TOKEN
    key: str = "corral_n1_secret"
    epoch: int = 0
    version: int = 1
    workers: list[dict[str, Any]] = field(default_factory=list)
    drop: list[list[Any]] = field(default_factory=list)
    gpu_releases: list[dict[str, Any]] = field(default_factory=list)
    engine: dict[str, Any] = field(default_factory=dict)
    redis_socket: Path | None = None
    beat_s: float = 0.2
    fence_after_s: float = 90.0
    register_refusal: tuple[int, str, str] | None = None
    beat_refusal: tuple[int, str] | None = None
    is_removed: bool = False
    joins: list[dict[str, Any]] = field(default_factory=list)
    registrations: list[dict[str, Any]] = field(default_factory=list)
    beats: list[dict[str, Any]] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._bell = threading.Condition()
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        config = uvicorn.Config(
            self._app(),
            host="127.0.0.1",
            port=self.port,
            log_level="error",
            ws="websockets-sansio",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 60
        while not self._server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self._server.started

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(60)
            assert not self._thread.is_alive()
            self._server = self._thread = None

    def desire(self, *workers: dict[str, Any]) -> None:
        self.workers = list(workers)
        self.version += 1

    def wait_for(self, condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
        """What `condition` gives, once something we were told makes it true."""
        with self._bell:
            assert self._bell.wait_for(condition, timeout_s), "it was never told"
            return condition()

    def await_worker(
        self, claim: Callable[[dict[str, Any]], bool], timeout_s: float = 60.0
    ) -> dict[str, Any]:
        """The worker's entry in a beat, from now on, for which `claim` is true."""
        seen = len(self.beats)

        def find() -> dict[str, Any] | None:
            for beat in self.beats[seen:]:
                for entry in beat["workers"]:
                    if claim(entry):
                        return dict(entry)
            return None

        found = self.wait_for(find, timeout_s)
        assert isinstance(found, dict)
        return found

    def _told(self, where: list[dict[str, Any]], what: dict[str, Any]) -> None:
        with self._bell:
            where.append(what)
            self._bell.notify_all()

    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/nodes/join", self._join, methods=["POST"]),
                Route("/nodes/{id}/register", self._register, methods=["POST"]),
                Route("/nodes/{id}/beat", self._beat, methods=["POST"]),
                Route("/nodes/{id}/desired", self._desired),
                WebSocketRoute("/engine", self._relay),
            ]
        )

    def _is_node(self, headers: Any) -> bool:
        return bool(headers.get("authorization") == f"Bearer {self.key}")

    async def _join(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return refusal(401, "unauthenticated", "the token has expired")
        self._told(self.joins, await request.json())
        return JSONResponse({"node_id": NODE, "key": self.key}, 201)

    async def _register(self, request: Request) -> Response:
        if not self._is_node(request.headers):
            return refusal(
                401, "unauthenticated", "unknown key", is_removed=self.is_removed
            )
        if self.register_refusal is not None:
            self._told(self.refused, await request.json())
            return refusal(*self.register_refusal)
        self.epoch += 1
        answer = {
            "epoch": self.epoch,
            "desired": {"version": self.version, "workers": self.workers},
            "beat_s": self.beat_s,
            "fence_after_s": self.fence_after_s,
            "sample_s": 1.0,
            "engine": {"direct_url": None, "database": 0, "prefix": "", **self.engine},
        }
        self._told(self.registrations, await request.json())
        return JSONResponse(answer)

    async def _beat(self, request: Request) -> Response:
        body = await request.json()
        if self.beat_refusal is not None:
            status, code = self.beat_refusal
            self._told(self.refused, body)
            return refusal(status, code)
        if body["epoch"] != self.epoch:
            return refusal(409, "conflict", "another epoch")
        self._told(self.beats, body)
        return JSONResponse({"desired_version": self.version, "drop": self.drop})

    async def _desired(self, request: Request) -> Response:
        since, wait = request.query_params["since"], request.query_params["wait"]
        until = time.monotonic() + min(float(wait), 2.0)
        # Not an event: tests change the version from a thread of their own.
        while str(self.version) == since and time.monotonic() < until:
            if self._server is None or self._server.should_exit:
                break
            await asyncio.sleep(0.02)
        desired = {"version": self.version, "workers": self.workers}
        return JSONResponse({**desired, "gpu_releases": self.gpu_releases})

    async def _relay(self, socket: WebSocket) -> None:
        if not self._is_node(socket.headers):
            await socket.close(1008)
            return
        await socket.accept()
        reader, writer = await asyncio.open_unix_connection(str(self.redis_socket))

        async def down() -> None:
            while data := await reader.read(65536):
                await socket.send_bytes(data)
            await socket.close()

        pump = asyncio.create_task(down())
        try:
            while True:
                writer.write(await socket.receive_bytes())
                await writer.drain()
        except (WebSocketDisconnect, ConnectionError):
            pass
        finally:
            pump.cancel()
            writer.close()
