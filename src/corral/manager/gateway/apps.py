"""The gateway: apps by name, and requests carried to them over pinned addresses.

It never follows a redirect and keeps no cookies, and shows a worker's token to nobody
but that worker; what of a request may travel is the business of whoever calls `send`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterable, Sequence
from dataclasses import replace

import httpx

from corral.core.nodes.worker import WorkerRecord, WorkerSpec, WorkerState
from corral.core.tasks.app import App
from corral.errors import (
    Conflict,
    Forbidden,
    InvalidField,
    NotFound,
    Unauthenticated,
)
from corral.manager.access.derived_keys import worker_token
from corral.manager.access.sessions import Tickets
from corral.manager.cluster.links import InsideWorker
from corral.manager.cluster.state import Cluster, WorkerLink
from corral.manager.context import ManagerContext
from corral.manager.outbound.address import GatewayConfig, Pinned, pin
from corral.scheduler.events import WorkerGone, WorkerReady
from corral.store.base import RegistryStore
from corral.trust import is_this_machine
from corral.wire.job_api import CALL_PASS

NODE = "manager"
MAX_TIMEOUT_S = 86_400.0
MAX_CONCURRENCY = 1024
MAX_ROUTES, MAX_PATH = 100, 512
_PATH = re.compile(r"(/[A-Za-z0-9._~:@!$&'()*+,;=%-]+)+")
_PIN_S = 5.0
_CONNECT_S = 10.0
_LIMITS = httpx.Limits(max_connections=1024, max_keepalive_connections=128)
Header = tuple[bytes, bytes]
_Way = tuple[Pinned, str | None]
"""Where an app is, and the id of the worker of ours that it is, if it is one."""
_RUN = b"/run"
_PASS_S = 120.0
_LIVING = (WorkerState.READY, WorkerState.BUSY)


class AppRequests:
    """Carries requests to apps over pinned addresses."""

    def __init__(self, ctx: ManagerContext, config: GatewayConfig) -> None:
        self._cluster = ctx.cluster
        self._clock = ctx.clock
        self._secret = ctx.secret
        self._config = config
        self._transport: httpx.AsyncHTTPTransport | None = None
        self._pins: dict[str, tuple[float, _Way]] = {}
        self._passes: Tickets[str] = Tickets(ctx.clock, _PASS_S, "the gateway")

    async def send(
        self,
        app: App,
        method: str,
        path: bytes,
        headers: Sequence[Header],
        content: AsyncIterable[bytes] | bytes | None,
    ) -> httpx.Response:
        """The app's answer, its body still to be read and closed.

        `path` is what stands behind the app's own URL, query included.

        Raises:
            InvalidField: the app's URL must not be reached (any more).
            httpx.HTTPError: the app did not answer.
            httpx.InvalidURL: there can be no such path.
        """
        pinned, worker_id = await self._way(app)
        if worker_id is not None:
            shown = worker_token(self._secret, worker_id)
            headers = [*headers, (b"authorization", b"Bearer " + shown.encode())]
            target = pinned.url.raw_path + path.partition(b"?")[0]
            if method == "POST" and target.rstrip(b"/").endswith(_RUN):
                word = self._passes.issue(worker_id).encode()
                headers.append((CALL_PASS.encode(), word))
        *firsts, last = pinned.addresses
        for address in firsts:
            try:
                return await self._send(
                    app, pinned, address, method, path, headers, content
                )
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue  # Nothing of the body has been read yet.
        return await self._send(app, pinned, last, method, path, headers, content)

    def admit(self, word: str | None, worker_id: str) -> None:
        """May the node of this worker bring a job back to it? Once for each call.

        Raises:
            Forbidden: the gateway has not called that worker, or this was used.
        """
        try:
            is_called = self._passes.use(word or "") == worker_id
        except Unauthenticated:
            is_called = False
        if not is_called:
            raise Forbidden(
                "a node submits nothing by itself, only what the manager's gateway "
                "gave to its worker; use a key with scope 'submit'"
            )

    async def is_own_worker(self, app: App) -> bool:
        """Does this app lead to the port of a worker of ours?"""
        return (await self._way(app))[1] is not None

    async def _send(
        self,
        app: App,
        pinned: Pinned,
        address: str,
        method: str,
        path: bytes,
        headers: Sequence[Header],
        content: AsyncIterable[bytes] | bytes | None,
    ) -> httpx.Response:
        base = pinned.url.raw_path.rstrip(b"/")
        limit_s = app.timeout_for(path.partition(b"?")[0].decode())
        timeout = httpx.Timeout(limit_s, connect=min(_CONNECT_S, limit_s))
        request = httpx.Request(
            method,
            pinned.url.copy_with(host=address, raw_path=base + path or b"/"),
            headers=[(b"host", pinned.url.netloc), *headers],
            content=content,
            # The certificate must be that of the name, wherever the name leads.
            extensions={"timeout": timeout.as_dict(), "sni_hostname": pinned.url.host},
        )
        return await self._open().handle_async_request(request)

    async def _way(self, app: App) -> _Way:
        until, way = self._pins.get(app.url, (0.0, None))
        now = self._clock.monotonic()
        if way is None or now >= until:
            pinned = await pin(app.url, self._config)
            way = (pinned, own_worker(self._cluster, pinned.url))
            self._pins = {u: p for u, p in self._pins.items() if now < p[0]}
            self._pins[app.url] = (now + _PIN_S, way)
        return way

    def _open(self) -> httpx.AsyncHTTPTransport:
        """Made with the first request: loading certificates takes its time."""
        if self._transport is None:
            # A proxy of the environment would connect elsewhere than was checked.
            self._transport = httpx.AsyncHTTPTransport(trust_env=False, limits=_LIMITS)
        return self._transport

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()


class Apps:
    """Which apps there are. Tasks that target one are placed on it as on a worker."""

    def __init__(
        self, ctx: ManagerContext, config: GatewayConfig, calls: InsideWorker
    ) -> None:
        self._cluster = ctx.cluster
        self._store: RegistryStore = ctx.store.registry
        self._clock = ctx.clock
        self._config = config
        self._calls = calls

    async def load(self) -> None:
        for app in await self._store.apps():
            self._take(app)

    def app(self, name: str) -> App:
        found = self._cluster.apps.get(name)
        if found is None:
            raise NotFound(f"no app {name!r}", app=name)
        return found

    def find(self, name: str) -> App | None:
        return self._cluster.apps.get(name)

    def all(self) -> list[App]:
        """By name."""
        return sorted(self._cluster.apps.values(), key=lambda app: app.name)

    def types_of(self, app: App) -> list[str]:
        """The job types that target it, by name."""
        return sorted(self._cluster.types_for(app.name))

    async def register(
        self, name: str, url: str, timeout_s: float, concurrency: int
    ) -> App:
        """Save an app; one that is known keeps the limits of its paths.

        Raises:
            InvalidField: when its URL cannot be used or must not be reached.
        """
        known = self.find(name)
        timeouts = known.timeouts if known else {}
        now = self._clock.now()
        app = App(name, url, timeout_s, concurrency, now, timeouts)
        await self.save(app)
        return app

    async def save(self, app: App) -> None:
        """Register an app, or give the one of that name another URL.

        Raises:
            InvalidField: when its URL cannot be used or must not be reached.
        """
        _check_timeout(app.timeout_s)
        if not 1 <= app.concurrency <= MAX_CONCURRENCY:
            raise InvalidField(
                f"concurrency must be 1 to {MAX_CONCURRENCY}", field="concurrency"
            )
        await pin(app.url, self._config)
        await self._store.save_app(app)
        self._take(app)

    def _take(self, app: App) -> None:
        """Tasks that target the app are placed on it as on a worker."""
        self._cluster.apps[app.name] = app
        link = self._cluster.inside.get(app.link_id)
        if link is None:
            worker = WorkerRecord(
                app.link_id,
                NODE,
                WorkerSpec(app.name, "app", (), concurrency=app.concurrency),
                state=WorkerState.READY,
                # Another manager's calls died with it: its tasks go back.
                incarnation=secrets.token_hex(8),
            )
            link = WorkerLink(worker, inside=self._calls)
            self._cluster.inside[link.id] = link
        types = self._cluster.types_for(app.name)
        slots, opened = app.concurrency, len(link.orders)
        self._cluster.scheduler.apply(WorkerReady(link.id, NODE, types, slots, opened))

    async def set_timeout(self, name: str, path: str, timeout_s: float) -> App:
        """Give a path of an app, and all below it, a limit of its own."""
        app, path = self.app(name), path.rstrip("/")
        if not _PATH.fullmatch(path) or ".." in path or len(path) > MAX_PATH:
            raise InvalidField(
                "path must begin with / and be as it stands in a URL", field="path"
            )
        _check_timeout(timeout_s)
        if path not in app.timeouts and len(app.timeouts) >= MAX_ROUTES:
            raise InvalidField(f"an app has at most {MAX_ROUTES} routes", field="path")
        return await self._set_timeouts(app, {**app.timeouts, path: timeout_s})

    async def drop_timeout(self, name: str, path: str) -> App:
        """Raises NotFound when that path has no limit of its own."""
        app, path = self.app(name), path.rstrip("/")
        if path not in app.timeouts:
            raise NotFound(f"app {name!r} has no route {path[:200]!r}", app=name)
        left = {p: limit for p, limit in app.timeouts.items() if p != path}
        return await self._set_timeouts(app, left)

    async def _set_timeouts(self, app: App, timeouts: dict[str, float]) -> App:
        app = replace(app, timeouts=timeouts)
        await self._store.save_app(app)
        self._take(app)
        return app

    async def delete(self, name: str) -> None:
        """Raises NotFound; Conflict while a job type targets it."""
        app = self.app(name)
        if types := self._cluster.types_for(name):
            raise Conflict(
                f"job type(s) {', '.join(sorted(types))} target app '{name}'",
                job_types=sorted(types),
            )
        await self._store.delete_app(name)
        self._cluster.apps.pop(name, None)
        self._cluster.inside.pop(app.link_id, None)
        self._cluster.scheduler.apply(WorkerGone(app.link_id))


def own_worker(cluster: Cluster, url: httpx.URL) -> str | None:
    """The worker that has this address, by id; None when it is a stranger."""
    for link in cluster.workers.values():
        if link.worker.state in _LIVING and _is_at(cluster, link, url):
            return link.id
    return None


def _is_at(cluster: Cluster, link: WorkerLink, url: httpx.URL) -> bool:
    try:
        own = httpx.URL(link.worker.spec.url or "")
    except httpx.InvalidURL:
        return False
    if (own.scheme, own.port) != (url.scheme, url.port) or not own.host:
        return False
    if not is_this_machine(str(own)):
        return own.host == url.host
    # Every machine has a localhost: the worker must be on ours.
    node = cluster.nodes.get(link.worker.node_id)
    address = node.node.address if node else None
    is_near = address is not None and is_this_machine(_url_of(address))
    return is_near and is_this_machine(str(url))


def _url_of(address: str) -> str:
    return f"http://[{address}]" if ":" in address else f"http://{address}"


def _check_timeout(seconds: float) -> None:
    if not 0 < seconds <= MAX_TIMEOUT_S:
        raise InvalidField(
            f"timeout must be over 0 and at most {MAX_TIMEOUT_S:.0f} seconds",
            field="timeout",
        )
