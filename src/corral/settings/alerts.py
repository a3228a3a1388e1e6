"""What alarms, who is told, and what is told to traces and logs.

Part of `Settings`; what each is for stands in docs/settings.md. Nothing is read here.
"""

from __future__ import annotations

from typing import Literal

from pydantic import SecretStr
from pydantic_settings import BaseSettings

from corral.settings import derived as made
from corral.settings import sources as alias
from corral.settings.sources import Seconds, setting


class AlertSettings(BaseSettings):
    """What `Settings` has of alerts, traces and logs."""

    # Alerts
    alert_cpu_percent: float = setting(98.0, span=alias.PERCENT)
    alert_memory_percent: float = setting(90.0, span=alias.PERCENT)
    alert_disk_percent: float = setting(90.0, span=alias.PERCENT)
    alert_temperature_c: float = setting(87.0, span=(20, 150))
    alert_queue_depth: int = setting(10_000, span=alias.COUNT)
    alert_error_rate: float = setting(0.2, span=alias.SHARE)
    alert_after_s: Seconds = setting(60.0, span=(0, alias.DAY_S))
    alert_clear_share: float = setting(0.95, span=alias.SHARE)
    alert_webhooks: alias.SecretUrls | None = setting(None)

    # Traces
    otlp_endpoint: alias.HttpUrl | None = setting(None, "OTEL_EXPORTER_OTLP_ENDPOINT")
    otlp_headers: SecretStr | None = setting(None, "OTEL_EXPORTER_OTLP_HEADERS")
    otlp_service: str = setting("corral", "OTEL_SERVICE_NAME")
    otlp_ratio: float = setting(1.0, span=(0, 1))

    # Logs
    log_format: Literal["json", "text"] = setting("json", "LOG_FORMAT")
    debug: bool = setting(False, "DEBUG")
    log_level: alias.Level = setting(made.log_level, "LOG_LEVEL")
