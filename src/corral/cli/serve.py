"""The hidden commands behind the processes: `corral manager serve`, `agent serve`.

Here, and only here, the manager's rooms are wired to settings, files and sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import typer

from corral.cli.serve_files import Files, prepare
from corral.embedded.folder import Folder, load_state
from corral.errors import SettingsError, Unavailable

if TYPE_CHECKING:
    from fastapi import FastAPI

    from corral.manager.app import Manager
    from corral.manager.config import ManagerConfig
    from corral.manager.outbound.address import GatewayConfig
    from corral.settings import Settings

manager = typer.Typer(add_completion=False)
agent = typer.Typer(add_completion=False)
log = logging.getLogger("corral")


@manager.callback()
def manager_group() -> None:
    """The manager process."""


@agent.callback()
def agent_group() -> None:
    """The agent process."""


@manager.command("serve")
def serve_manager() -> None:
    """Run a manager in the foreground, on the stores the settings name."""
    # What is imported from here on stays: looking through it for cycles, again and
    # again while there is more of it, would cost a quarter of the start.
    gc.disable()
    from corral import settings
    from corral.cli.log import configure, secrets_of

    config = settings.load()
    configure(config.log_level, config.log_format, secrets_of(config))
    config.require_loopback_or_tls()
    for stranger in config.unknown:
        log.warning("unknown setting: %s", stranger)
    raise typer.Exit(_run_manager(config))


def _run_manager(config: Settings) -> int:
    import uvicorn

    from corral.api.app import build
    from corral.cli.discovery import announced

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

    app = build(
        lifespan,
        task_body_limit=int(config.task_body_limit),
        batch_body_limit=int(config.batch_body_limit),
        debug=config.debug,
    )

    app.state.stop = partial(_stop, files.home)

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            if (boss := getattr(app.state, "manager", None)) is not None:
                boss.hush()
            await super().shutdown(sockets)

    server = Server(
        uvicorn.Config(
            app,
            host=config.host,
            port=config.port,
            loop="uvloop" if sys.platform != "win32" else "asyncio",
            access_log=False,
            log_config=None,
            server_header=False,
            ws_max_size=16 << 20,
            # To press the same events for each who listens would cost more than
            # sending them, and a third of a megabyte each.
            ws_per_message_deflate=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=5,
            ssl_certfile=config.ssl_cert_path,
            ssl_keyfile=config.ssl_key_path,
        )
    )
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
    from corral.core.access.key import Scope
    from corral.engine.dispatch import Dispatcher
    from corral.manager.app import Manager
    from corral.store.postgres.store import PostgresStore

    store = PostgresStore(
        files.database_url, objects=files.objects, pool_size=config.database_pool_size
    )
    engine = Dispatcher(files.redis_url)
    await _wait_for("the database", store.open, config.wait_for_stores_s)
    await _wait_for("Redis", engine.server_id, config.wait_for_stores_s)
    boss = Manager(
        store,
        engine,
        manager_config(config, files.cluster_secret),
        objects=files.objects,
    )
    meter = boss.cluster.meters.store
    store.measure(lambda name, seconds: meter.add(seconds, name))
    await boss.start()
    await boss.access.ensure(files.admin_key, Scope.ADMIN, "admin")
    if config.bootstrap_api_key is not None:
        text = config.bootstrap_api_key.get_secret_value()
        await boss.access.ensure(text, Scope.ADMIN, "API_KEY")
    return boss


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


def manager_config(config: Settings, cluster_secret: bytes) -> ManagerConfig:
    from corral.cli.alert_policy import alert_config, live_config
    from corral.cli.machine import master_config
    from corral.cli.neighbour import neighbour_config, trace_config
    from corral.cli.serve_liveness import liveness
    from corral.cli.serve_models import source_config
    from corral.cli.serve_scaling import scaling_config
    from corral.core.tasks.retry import RetryPolicy
    from corral.manager.access.rate_limit import Limits
    from corral.manager.config import ManagerConfig
    from corral.manager.models.memory import ModelConfig
    from corral.scheduler.scheduler import Policy
    from corral.store.base import Retention

    return ManagerConfig(
        cluster_secret=cluster_secret,
        cluster_name=config.cluster_name,
        policy=Policy(
            order_max_tasks=config.order_max_tasks,
            order_budget_s=config.order_budget_ms / 1000,
            most_models=config.model_cache_size,
            is_lru=config.eviction == "lru",
            strategy=config.strategy,
            preempts=config.preemption,
            prefetch=config.prefetch,
        ),
        retry=RetryPolicy(
            base_s=config.retry_base_s,
            cap_s=config.retry_cap_s,
            max_losses=config.max_losses,
        ),
        liveness=liveness(config),
        limits=Limits(
            config.rate_limit_per_s, config.rate_burst, config.failed_auth_per_min
        ),
        keep=Retention(
            config.keep_tasks_s,
            config.keep_events_s,
            config.keep_samples_s,
            config.keep_audit_s,
            config.keep_minutes_s,
            config.keep_hours_s,
        ),
        artifact_limit_bytes=int(config.artifact_limit_gb * (1 << 30)),
        result_cache_bytes=int(config.result_cache_mb * (1 << 20)),
        keep_objects_s=config.keep_objects_s,
        beat_s=config.beat_s,
        fence_after_s=config.fence_after_s,
        overrun_s=config.overrun_ms / 1000,
        sample_s=config.heartbeat_interval_s,
        stale_node_after_s=config.stale_node_after_s,
        journal_events=config.journal_events,
        default_timeout_s=config.task_timeout_s,
        is_open=config.insecure,
        is_metrics_public=config.metrics_public,
        worker_ports=_ports(config.worker_ports),
        gateway=gateway_config(config),
        alerts=alert_config(config),
        live=live_config(config),
        models=ModelConfig(
            config.gpu_memory_threshold,
            config.model_idle_s,
            config.model_load_timeout_s,
        ),
        sources=source_config(config),
        scaling=scaling_config(config),
        neighbour=neighbour_config(config),
        traces=trace_config(config),
        master=master_config(config),
    )


def gateway_config(config: Settings) -> GatewayConfig:
    """What the gateway must keep away from, and what it may reach."""
    from corral.manager.outbound.address import GatewayConfig
    from corral.settings import is_loopback

    urls = [urlsplit(config.manager_url)]
    for secret in (config.database_url, config.redis_url):
        urls += [urlsplit(secret.get_secret_value())] if secret else []
    ports = {"http": 80, "https": 443, "redis": 6379, "rediss": 6379}
    own = [
        (url.hostname, url.port or ports.get(url.scheme, 5432))
        for url in urls
        if url.hostname
    ]
    return GatewayConfig(
        own=((config.host, config.port), *own),
        allow=config.gateway_allow,
        is_exposed=not is_loopback(config.host),
    )


def _ports(text: str) -> tuple[int, ...]:
    low, high = (int(part) for part in text.replace(",", "-").split("-"))
    if not 1 <= low <= high <= 65_535:
        raise SettingsError(f"CORRAL_WORKER_PORTS={text}: allowed is a range of ports")
    return tuple(range(low, high + 1))


@agent.command("serve")
def serve_agent(name: str = "local") -> None:
    """Run an agent in the foreground, as `corral up` starts it."""
    from corral import settings
    from corral.agent.config import AgentConfig
    from corral.agent.life.main import serve
    from corral.agent.worker_option import parse_all
    from corral.cli import node_policy
    from corral.cli.log import configure, secrets_of
    from corral.cli.machine import machine_id

    config = settings.load()
    configure(config.log_level, config.log_format, secrets_of(config))
    token = config.join_token
    raise typer.Exit(
        serve(
            AgentConfig(
                manager_url=config.manager_url,
                home=Path(config.home),
                name=config.node_name or name or socket.gethostname(),
                join_token=token.get_secret_value() if token else None,
                workers=parse_all(
                    _worker_options(config.agent_workers), config.worker_concurrency
                ),
                labels=node_policy.node_labels(config),
                taints=node_policy.node_taints(config),
                ca_file=config.ssl_cert_path,
                die_with_parent=True,
                code=node_policy.code_policy(config),
                containers=node_policy.container_policy(config),
                peer_port=node_policy.peer_port(config),
                gpus=node_policy.gpu_policy(config),
                breaker=node_policy.breaker_policy(config),
                machine=machine_id(),
                owner=node_policy.owner_policy(config),
                node_type="master",
                log_format=config.log_format,
                send_events=config.worker_send_task_events,
            )
        )
    )


def _worker_options(text: str) -> list[str]:
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    if not isinstance(told, list) or not all(isinstance(x, str) for x in told):
        raise SettingsError(
            f"CORRAL_AGENT_WORKERS={text}: allowed is a JSON list of worker options"
        )
    return told
