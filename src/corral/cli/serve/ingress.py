"""`corral ingress`: takes the messages of plain Celery clients, in the foreground."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.options.connect import reach_of
from corral.errors import SettingsError

if TYPE_CHECKING:
    from pydantic import SecretStr

    from corral.client import AsyncClient
    from corral.compat.ingress import IngressConfig
    from corral.settings import Settings

_REDIS = re.compile(r"(rediss?|unix|redis\+socket)://\S+")


def ingress(
    ctx: typer.Context,
    queue: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A queue to take from; repeatable."),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=TYPE]",
            help="A task that may wait for a worker, or its own job type; repeatable.",
        ),
    ] = None,
    track_started: Annotated[
        bool, typer.Option("--track-started", help="Also tell when a task starts.")
    ] = False,
) -> None:
    """Turn messages of plain Celery clients into tasks, and write their results back.

    The broker is CORRAL_CELERY_BROKER_URL, results go to CORRAL_CELERY_RESULT_BACKEND.
    """
    from corral import settings
    from corral.cli.terminal.log import configure, secrets_of
    from corral.client import AsyncClient, Patience

    reach = reach_of(ctx)
    config = settings.load(
        home=reach.home,
        celery_queues=",".join(queue) if queue else None,
        celery_tasks=",".join(task) if task else None,
        celery_track_started=track_started or None,
    )
    configure(config.log_level, config.log_format, secrets_of(config))
    told = config_of(config)
    patience = Patience(total_s=math.inf, first_s=30.0)
    client = AsyncClient(
        reach.url, home=reach.home, ca_file=config.ssl_cert_path, patience=patience
    )
    raise typer.Exit(asyncio.run(_serve(told, client)))


def config_of(config: Settings) -> IngressConfig:
    """What the settings say of the ingress.

    Raises:
        SettingsError: there is no broker, or a URL is not one of Redis.
    """
    from corral.compat.ingress import IngressConfig

    broker = _redis_url(config, "celery_broker_url") or _text(config.redis_url)
    if broker is None:
        raise SettingsError(
            "no broker to take messages from: set CORRAL_CELERY_BROKER_URL to the "
            "Redis that Celery clients send to"
        )
    pairs = (entry.partition("=") for entry in _words(config.celery_tasks))
    return IngressConfig(
        broker,
        tuple(_words(config.celery_queues)),
        _redis_url(config, "celery_result_backend"),
        {name.strip(): kind.strip() for name, _, kind in pairs},
        config.celery_track_started,
    )


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _text(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret is not None else None


def _redis_url(config: Settings, name: str) -> str | None:
    url = _text(getattr(config, name))
    if url is not None and not _REDIS.fullmatch(url):
        raise SettingsError(
            f"{config.variable(name)} must be a URL like redis://host:6379/0: "
            "the ingress knows no other broker or result backend"
        )
    return url


async def _serve(config: IngressConfig, client: AsyncClient) -> int:
    from corral.compat.ingress import serve

    loop, serving = asyncio.get_running_loop(), asyncio.current_task()
    assert serving is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        # Windows has no such handlers; there, Ctrl-C ends it as well.
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, serving.cancel)
    async with client:
        try:
            await serve(config, client)
        except asyncio.CancelledError:
            return 0
        except ExceptionGroup as group:
            raise _first(group) from None
    return 0


def _first(group: ExceptionGroup[Exception]) -> Exception:
    """What ended the loops: one of them is as good as all."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, ExceptionGroup) else error
