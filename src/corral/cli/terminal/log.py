"""Logging of the long-running processes: JSON lines or text, on stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import structlog

from corral.log_line import Redaction, bound

if TYPE_CHECKING:
    from corral.settings import Settings

# Shorter ones would blot out words of the log.
_TOKEN_LENGTH = 12
_QUIET = ("httpx", "httpcore", "uvicorn.access", "alembic", "asyncio")


def _plain(_logger: Any, _name: str, event: dict[str, Any]) -> dict[str, Any]:
    """The web server says things twice, the second time in colour."""
    event.pop("color_message", None)
    return event


def _correlate(_logger: Any, _name: str, event: dict[str, Any]) -> dict[str, Any]:
    """What the context says, unless the line itself knows better."""
    for name, value in bound.get().items():
        event.setdefault(name, value)
    return event


def secrets_of(config: Settings) -> Iterable[str]:
    """Everything secret that the settings hold."""
    for name in type(config).model_fields:
        value = getattr(config, name)
        if callable(get := getattr(value, "get_secret_value", None)):
            yield (text := str(get()))
            if "://" in text:
                yield from filter(None, (urlsplit(text).password,))
            if text.startswith("http"):
                yield from _paths(text)


def _paths(urls: str) -> Iterator[str]:
    """What stands behind the hosts of a list of URLs, where that may be a token."""
    for url in urls.split(","):
        parts = urlsplit(url)
        said = f"{parts.path}?{parts.query}".rstrip("?")
        if len(said) >= _TOKEN_LENGTH:
            yield said


def configure(level: str, log_format: str, secrets: Iterable[str] = ()) -> None:
    """Send every logger through one formatter; the last to speak wins.

    `secrets` are never written, whoever says them.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.ExtraAdder(),
        _plain,
        _correlate,
    ]
    last: Any = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=False)
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            Redaction(secrets),
            last,
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
