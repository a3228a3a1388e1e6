"""The real application and manager on the twins of store and engine, and a node and
workers that speak the wire as agents and supervisors do."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Sequence, Sized
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from fastapi import FastAPI

from corral.api.app import around, build
from corral.api.site import SiteRules
from corral.core.access.key import Scope
from corral.engine.envelope import verify
from corral.manager.app import Manager, make_context
from corral.manager.clock import Clock
from corral.manager.config import ManagerConfig
from corral.manager.outbound.address import GatewayConfig
from tests.twins.engine import InlineDispatcher
from tests.twins.store import MemoryStore
from tests.unit.api.faulty import FaultyStore

SECRET = b"the secret of the cluster"
# Receivers of webhooks are here, too.
CONFIG = ManagerConfig(SECRET, gateway=GatewayConfig(allow=("127.0.0.0/8",)))
Json = dict[str, Any]
QUIET_TURNS = 5


class StepClock(Clock):
    """Time that passes when told."""

    def __init__(self) -> None:
        self._passed = 0.0
        self._start = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        return 1000.0 + self._passed

    def step(self, seconds: float) -> None:
        self._passed += seconds

    async def sleep(self, seconds: float) -> None:
        """Loops that look at this clock are stepped by tests, and not when a slow
        machine lets time pass between two calls; the quickest only hand on.
        """
        await asyncio.sleep(seconds if seconds < 0.15 else 3600.0)


async def quiet(turns: int = 200) -> None:
    """Let every coroutine go as far as it can; nothing here waits for the outside.

    They are that far when we alone are woken, several times in a row: in between the
    loop has looked at its sockets and threads.
    """
    ready: Sized = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    alone = 0
    for _ in range(turns):
        await asyncio.sleep(0)
        alone = 0 if ready else alone + 1
        if alone == QUIET_TURNS:
            return


class Http(httpx.AsyncClient):
    """A client of the application; `ask` is for thousands of plain requests.

    A third of what one took was the client's: cookies, redirects, merged addresses.
    """

    def __init__(self, app: FastAPI, ip: str = "127.0.0.1") -> None:
        self._app = httpx.ASGITransport(
            app, raise_app_exceptions=False, client=(ip, 123)
        )
        super().__init__(transport=self._app, base_url="http://corral")
        self._usual = dict(self.headers)

    async def ask(
        self, method: str, path: str, headers: dict[str, str], **more: Any
    ) -> httpx.Response:
        url = path if "://" in path else f"http://corral{path}"
        told = self._usual | {name.lower(): value for name, value in headers.items()}
        request = httpx.Request(method, url, headers=told, **more)
        answer = await self._app.handle_async_request(request)
        answer.request = request
        await answer.aread()
        return answer


class Caller:
    """A client with one key (or none)."""

    def __init__(self, http: Http, key: str | None) -> None:
        self._http = http
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}

    async def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {**self.headers, **more.pop("headers", {})}
        return await self._http.ask(method, path, headers, **more)

    async def get(self, path: str, **query: Any) -> httpx.Response:
        return await self.send("GET", path, params=query or None)

    async def post(self, path: str, body: Any = None, **more: Any) -> httpx.Response:
        if isinstance(body, bytes):
            return await self.send("POST", path, content=body, **more)
        return await self.send("POST", path, json=body or {}, **more)

    async def delete(self, path: str) -> httpx.Response:
        return await self.send("DELETE", path)

    async def ask(self, path: str, **query: Any) -> Json:
        return said(await self.get(path, **query))

    async def tell(self, path: str, body: Any = None) -> Json:
        return said(await self.post(path, body))

    async def submit(self, task_type: str = "echo", **more: Any) -> str:
        """Submit one task; its id."""
        task: Json = {"task_type": task_type, **more}
        return str((await self.tell("/tasks", task))["task_id"])

    async def task(self, task_id: str) -> Json:
        return await self.ask(f"/tasks/{task_id}")

    async def status(self, task_id: str) -> str:
        return str((await self.task(task_id))["status"])


def said(answer: httpx.Response) -> Json:
    assert answer.is_success, f"{answer.status_code}: {answer.text}"
    found: Json = answer.json()
    return found


def fault(answer: httpx.Response, status: int, code: str) -> Json:
    """The one error shape, or the one of /v1, checked; what stands in it."""
    assert answer.status_code == status, f"{answer.status_code}: {answer.text}"
    body = answer.json()
    assert set(body) == {"error"}
    error: Json = body["error"]
    if answer.request.url.path.startswith("/v1/"):
        assert set(error) == {"message", "type", "param", "code"}
        assert error["code"] == {"unauthenticated": "invalid_api_key"}.get(code, code)
        return error
    assert set(error) == {"code", "message", "details", "request_id", "timestamp"}
    assert error["code"] == code, error
    assert error["message"]
    assert error["request_id"] == answer.headers["x-request-id"]
    datetime.fromisoformat(error["timestamp"])
    return error


def _integer(digits: str) -> int | str:
    """Python refuses to read integers without end."""
    return int(digits) if len(digits) < 1000 else digits


class FakeWorker:
    """A supervisor: registers, takes orders from its queue, reports."""

    def __init__(self, node: FakeNode, worker_id: str) -> None:
        self.node = node
        self.id = worker_id
        self.pid = 4000
        self.incarnation = self.secret = self.queue = ""
        self._numbers = itertools.count(1)

    async def register(self, pid: int | None = None) -> Json:
        self.pid = pid or self.pid
        body = {"pid": self.pid, "epoch": self.node.epoch}
        told = await self.node.caller.tell(f"/workers/{self.id}/register", body)
        self.incarnation, self.secret = told["incarnation"], told["secret"]
        self.queue = told["queue"]
        return told

    async def report(self, report_id: str | None = None, **more: Any) -> httpx.Response:
        number = report_id or str(next(self._numbers))
        body = {"incarnation": self.incarnation, "report_id": number, **more}
        answer = await self.node.caller.post(f"/workers/{self.id}/reports", body)
        await quiet()
        return answer

    async def start(self) -> FakeWorker:
        """Register and say ready."""
        await self.register()
        said(await self.report(state="ready"))
        return self

    def read(self, signed: Any) -> Json:
        """An order, once its signature is ours."""
        body = verify(signed, self.secret)
        assert body is not None, "the signature is wrong"
        order: Json = json.loads(body, parse_int=_integer)
        assert order["worker_id"] == self.id
        assert order["incarnation"] == self.incarnation
        return order

    def orders(self) -> list[Json]:
        """Take everything off the queue."""
        sent = self.node.world.engine.sent.pop(self.queue, [])
        return [self.read(signed) for signed in sent]

    def take(self) -> list[Json]:
        """Take the items of all orders off the queue."""
        return [item for order in self.orders() for item in order["items"]]

    def take_one(self) -> Json:
        (item,) = self.take()
        return item

    async def finish(self, item: Json, result: Any = None, **more: Any) -> Json:
        return said(await self.report(outcomes=[outcome(item, result)], **more))

    async def fail(self, item: Json, message: str = "it broke", **more: Any) -> Json:
        error = {"kind": "exception", "message": message, "traceback": "Traceback: x"}
        ended = outcome(item, kind="failed", error=error)
        return said(await self.report(outcomes=[ended], **more))

    async def begin(self, item: Json) -> None:
        at = self.node.world.clock.now().timestamp()
        await self.report(started=[[item["task_id"], item["attempt"], at]])

    def word(self, *items: Json, state: str = "ready", **more: Any) -> Json:
        """What the agent says of this worker in a beat."""
        return {
            "worker_id": self.id,
            "incarnation": self.incarnation,
            "state": state,
            "pid": self.pid,
            "held": [[item["task_id"], item["attempt"]] for item in items],
            **more,
        }


def outcome(item: Json, result: Any = None, **more: Any) -> Json:
    base = {"task_id": item["task_id"], "attempt": item["attempt"]}
    more.setdefault("kind", "completed")
    if more["kind"] == "completed":
        more["result"] = result
    return {**base, "started_at": time.time(), "duration_s": 0.5, **more}


@dataclass(slots=True)
class FakeNode:
    """An agent: joined with a token, registered, beating when told."""

    world: World
    id: str
    caller: Caller
    epoch: int = 0
    workers: dict[str, FakeWorker] = field(default_factory=dict)

    async def register(self, *declared: Json) -> Json:
        body = {"hostname": f"host-{self.id}", "workers": list(declared)}
        told = await self.caller.tell(f"/nodes/{self.id}/register", body)
        self.epoch = told["epoch"]
        for row in told["desired"]["workers"]:
            self.workers[row["name"]] = FakeWorker(self, row["worker_id"])
        return told

    async def beat(self, *words: Json, **more: Any) -> Json:
        answer = said(await self.try_beat(*words, **more))
        await quiet()
        return answer

    async def try_beat(self, *words: Json, **more: Any) -> httpx.Response:
        body = {"epoch": self.epoch, "workers": list(words), **more}
        return await self.caller.post(f"/nodes/{self.id}/beat", body)


def declared(name: str, *job_types: str, concurrency: int = 1) -> Json:
    return {
        "name": name,
        "worker_class": "corral.worker.builtin:EchoWorker",
        "job_types": list(job_types) or ["echo"],
        "concurrency": concurrency,
    }


@dataclass(slots=True)
class World:
    """One manager with everything around it."""

    store: FaultyStore
    engine: InlineDispatcher
    clock: StepClock
    manager: Manager
    app: FastAPI
    http: Http
    admin: Caller
    operate: Caller
    submit: Caller
    read: Caller
    nobody: Caller

    async def node(self, *workers: Json, ip: str = "") -> FakeNode:
        """A machine joins and registers, from this one or from another address."""
        token = (await self.admin.tell("/join-tokens", {"uses": 1}))["token"]
        joiner = Caller(self.http, token)
        told = await joiner.tell("/nodes/join", {"hostname": "host"})
        http = Http(self.app, ip) if ip else self.http
        node = FakeNode(self, told["node_id"], Caller(http, told["key"]))
        await node.register(*workers)
        return node

    async def worker(self, *job_types: str, concurrency: int = 1) -> FakeWorker:
        """A machine with one worker that is ready."""
        node = await self.node(declared("one", *job_types, concurrency=concurrency))
        return await node.workers["one"].start()

    async def step(self, seconds: float, *keep: FakeNode) -> None:
        """Let time pass, in which the nodes of `keep` go on beating."""
        self.clock.step(seconds)
        for node in keep:
            await node.beat(*(w.word() for w in node.workers.values()))
        await self.manager.upkeep.rescue.step()
        await self.manager.nodes.watch.step()
        self.manager.tasks.dispatch.kick()
        await quiet()


async def callers(manager: Manager, http: Http) -> list[Caller]:
    scopes = (Scope.ADMIN, Scope.OPERATE, Scope.SUBMIT, Scope.READ)
    keys = [
        (await manager.access.keys.create(scope, str(scope)))[1] for scope in scopes
    ]
    return [Caller(http, key) for key in (*keys, None)]


@asynccontextmanager
async def running(
    config: ManagerConfig = CONFIG,
    inner: MemoryStore | None = None,
    clock: StepClock | None = None,
    engine: InlineDispatcher | None = None,
    **limits: Any,
) -> AsyncIterator[World]:
    """A manager that serves, until the block ends."""
    clock, engine = clock or StepClock(), engine or InlineDispatcher()
    store = FaultyStore(inner or MemoryStore())
    manager = Manager(make_context(store, engine, config, clock), config)
    limits.setdefault("site", SiteRules(frozenset({"corral"})))
    app = build(around(manager), **limits)
    async with app.router.lifespan_context(app), Http(app) as http:
        made: Sequence[Caller] = await callers(manager, http)
        yield World(store, engine, clock, manager, app, http, *made)
        store.is_down = engine.is_down = False
