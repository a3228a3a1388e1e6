"""From settings to what the manager needs of the services around it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from corral.errors import SettingsError

if TYPE_CHECKING:
    from corral.manager.outbound.task_service import NeighbourConfig
    from corral.manager.tracing import TraceConfig
    from corral.settings import Settings

_HEADER = re.compile(r"([\w-]+) *= *([ -~]*)", re.ASCII)


def neighbour_config(config: Settings) -> NeighbourConfig | None:
    """The task service to tell of tasks, when one is named."""
    from corral.manager.outbound.task_service import NeighbourConfig

    if config.task_manager_url is None:
        return None
    key, label = config.task_manager_key, config.task_manager_label
    name, _, value = (label or "").partition(":")
    return NeighbourConfig(
        config.task_manager_url,
        key.get_secret_value() if key else None,
        (name, value) if label else None,
    )


def trace_config(config: Settings) -> TraceConfig | None:
    """The collector to send traces to, when one is named."""
    from corral.manager.tracing import TraceConfig

    if config.otlp_endpoint is None:
        return None
    return TraceConfig(
        config.otlp_endpoint,
        _headers(config),
        config.otlp_service,
        config.otlp_ratio,
    )


def _headers(config: Settings) -> dict[str, str]:
    """`name=value,name=value`; values may be escaped as in a URL."""
    told = config.otlp_headers
    found: dict[str, str] = {}
    for part in told.get_secret_value().split(",") if told else ():
        if not (pair := _HEADER.fullmatch(part.strip())):
            variable = config.variable("otlp_headers")
            text = f"{variable} must be headers like name=value,name=value"
            raise SettingsError(text, variable=variable)
        found[pair[1]] = unquote(pair[2])
    return found
