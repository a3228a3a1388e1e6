"""From settings to what the manager needs for alerts and for those who listen."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corral.manager.alerts.alerts import AlertConfig
    from corral.manager.events.broadcast import LiveConfig
    from corral.settings import Settings


def alert_config(config: Settings) -> AlertConfig:
    """When something is wrong, for how long, and who is told."""
    from corral.core.insight.health import Thresholds
    from corral.manager.alerts.alerts import AlertConfig

    return AlertConfig(
        Thresholds(
            cpu_percent=config.alert_cpu_percent,
            memory_percent=config.alert_memory_percent,
            disk_percent=config.alert_disk_percent,
            temperature_c=config.alert_temperature_c,
            gpu_memory_percent=100 * config.gpu_memory_threshold,
            queue_depth=config.alert_queue_depth,
            error_rate=config.alert_error_rate,
            clear_share=config.alert_clear_share,
        ),
        config.alert_after_s,
        tuple(filter(None, config.alert_webhooks.split(","))),
    )


def live_config(config: Settings) -> LiveConfig:
    """How many may listen to events, and from which pages."""
    from corral.manager.events.broadcast import LiveConfig

    origins = config.event_origins.split(",")
    return LiveConfig(
        listeners=config.event_listeners,
        per_client=config.event_listeners_per_client,
        origins=tuple(origin.rstrip("/") for origin in origins if origin),
    )
