"""The hidden command behind the manager process: `corral manager serve`.

Here, and only here, the manager's rooms are wired to settings, files and sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from corral.cli.serve.data_folder import Files, prepare
from corral.embedded.folder import Folder, load_state
from corral.errors import SettingsError, Unavailable

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI
    from starlette.types import ASGIApp

    from corral.api.app import Lifespan
    from corral.engine.dispatch import Dispatcher
    from corral.manager.app import Manager
    from corral.settings import Settings
from corral.cli.serve.config import manager_config

manager = typer.Typer(add_completion=False)
log = logging.getLogger("corral")


@manager.callback()
def manager_group() -> None:
    """The manager process."""


@manager.command("serve")
def serve_manager() -> None:
    """Run a manager in the foreground, on the stores the settings name."""
    # What is imported from here on stays: looking through it for cycles, again and
    # again while there is more of it, would cost a quarter of the start.
    gc.disable()
    from corral import settings
    from corral.cli.terminal.log import configure, secrets_of

    config = settings.load()
    configure(config.log_level, config.log_format, secrets_of(config))
    config.require_loopback_or_tls()
    config.require_strong_key()
    config.require_encrypted_database()
    for stranger in config.unknown:
        log.warning("unknown setting: %s", stranger)
    raise typer.Exit(_run_manager(config))


def _run_manager(config: Settings) -> int:
    import uvicorn

    from corral.cli.serve.discovery import announced

    files = prepare(config)
    failure: list[Unavailable] = []

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            boss = await _open(config, files)
        except Unavailable as e:
            failure.append(e)
            raise
        app.state.manager = boss
        watch = asyncio.create_task(_leave_when_deposed(boss, server))
        try:
            async with announced(config):
                yield
        finally:
            watch.cancel()
            await boss.stop()

    app = application(config, lifespan)
    app.state.stop = partial(_stop, files.home)

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            # No await in between: who is let go finds the server closed.
            _let_go(app)
            await super().shutdown(sockets)

    server = Server(server_config(config, app))
    # Tens of thousands of live tasks hold no cycles: looking through them again and
    # again for some would cost a fifth of the manager's time.
    gc.freeze()
    gc.set_threshold(50_000, 50, 1_000)
    gc.enable()
    with contextlib.suppress(SystemExit):
        server.run()
    if failure:
        typer.echo(f"corral: {failure[0].message}", err=True)
        return 3
    return 0 if server.started else 1


def application(config: Settings, lifespan: Lifespan) -> FastAPI:
    """The API as the settings want it; never with answers for developers."""
    from corral.api.app import build
    from corral.cli.serve.config import site_rules

    return build(
        lifespan,
        task_body_limit=int(config.task_body_limit),
        batch_body_limit=int(config.batch_body_limit),
        site=site_rules(config),
    )


def server_config(config: Settings, app: ASGIApp) -> uvicorn.Config:
    """How the API is served; what is said of callers is believed of proxies alone."""
    import uvicorn

    from corral.relay.http_limits import HttpLimits, file_limit, limited_protocol

    limits = HttpLimits(
        # Some files are for the stores, and for what is read and written.
        min(config.max_connections, file_limit() * 3 // 4),
        config.header_timeout_s,
        config.body_timeout_s,
    )
    return uvicorn.Config(
        app,
        http=limited_protocol(limits),
        host=config.host,
        port=config.port,
        loop="uvloop" if sys.platform != "win32" else "asyncio",
        access_log=False,
        log_config=None,
        server_header=False,
        # Else whoever calls from this machine could say it is somebody else.
        proxy_headers=bool(config.trusted_proxies),
        forwarded_allow_ips=list(config.trusted_proxies),
        ws_max_size=16 << 20,
        # To press the same events for each who listens would cost more than
        # sending them, and a third of a megabyte each.
        ws_per_message_deflate=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=5,
        ssl_certfile=config.ssl_cert_path,
        ssl_keyfile=config.ssl_key_path,
    )


def _let_go(app: FastAPI) -> None:
    """Answer all who wait, where the manager ever ran."""
    boss: Manager | None = getattr(app.state, "manager", None)
    if boss is not None:
        boss.release()


def _stop(home: Path) -> None:
    """End this manager; when `corral up` looks after it, all of that."""
    state = load_state(Folder(home))
    parent = os.getppid()
    is_looked_after = state is not None and state.parent.pid == parent
    os.kill(parent if is_looked_after else os.getpid(), signal.SIGTERM)


async def _leave_when_deposed(boss: Manager, server: object) -> None:
    await boss.deposed.wait()
    log.critical("another manager leads now; this one stops")
    server.should_exit = True  # type: ignore[attr-defined]


async def _open(config: Settings, files: Files) -> Manager:
    """Connect to the stores, waiting for them a while, and start the manager."""
    from corral.engine.dispatch import Dispatcher
    from corral.manager.access.derived_keys import audit_key
    from corral.manager.app import Manager, make_context
    from corral.store.postgres.store import PostgresStore

    store = PostgresStore(
        files.database_url,
        objects=files.objects,
        pool_size=config.database_pool_size,
        audit_key=audit_key(files.cluster_secret),
    )
    engine = Dispatcher(files.redis_url)
    await _wait_for("the database", store.open, config.wait_for_stores_s)
    await _wait_for("Redis", engine.server_id, config.wait_for_stores_s)
    await check_redis(engine, is_trusted=config.redis_trusted)
    told = manager_config(config, files.cluster_secret)
    ctx = make_context(store, engine, told, objects=files.objects)
    boss = Manager(ctx, told)
    meter = ctx.counters.store
    store.measure(lambda name, seconds: meter.add(seconds, name))
    await boss.start()
    given = config.bootstrap_api_key
    text = given.get_secret_value() if given else None
    await boss.access.bootstrap(files.admin_key, text)
    return boss


async def check_redis(engine: Dispatcher, *, is_trusted: bool) -> None:
    """Raises SettingsError for a Redis that lacks fixes which nodes could exploit."""
    version = await engine.version()
    if version is None or version.is_safe:
        return
    if not is_trusted:
        raise SettingsError(
            f"{version} lacks security fixes, and nodes speak to it: use "
            f"{version.floors}; set CORRAL_REDIS_TRUSTED=1 where your distribution "
            "has put them in without a new number"
        )
    log.warning("%s is old by its number; CORRAL_REDIS_TRUSTED has it used", version)


async def _wait_for(
    what: str, knock: Callable[[], Awaitable[object]], limit_s: float
) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    quiet_until, end = begun + 3.0, begun + limit_s
    while True:
        try:
            await knock()
            return
        except Unavailable as e:
            left = end - loop.time()
            if left <= 0:
                raise type(e)(
                    f"{what} did not answer within {limit_s:.0f} s: {e.message}"
                ) from e
            pause_s = 0.1
            if loop.time() >= quiet_until:
                log.warning("waiting for %s (%.0f s left): %s", what, left, e.message)
                pause_s = 1.0
            await asyncio.sleep(min(pause_s, left))
