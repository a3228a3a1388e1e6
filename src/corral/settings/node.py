"""Settings of nodes, alerts and those who listen to events. Part of `Settings`.

What each is for stands in docs/settings.md; nothing is read here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import BaseSettings

from corral.settings import sources as alias
from corral.settings.sources import Seconds, setting

_DAY_S = 86_400
_COUNT = (1, 1_000_000)
_WAIT = (0.1, _DAY_S)
_LONG = (1, 3650 * _DAY_S)
_PERCENT = (1, 100)
_SHARE = (0.01, 1)
_PAIR = r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?(=[A-Za-z0-9._/-]{0,63})?"
_Pairs = Annotated[
    str, Field(pattern=rf"^$|^{_PAIR}(,{_PAIR})*$"), "a list like rack=a,disk=ssd"
]
_Urls = Annotated[
    str, Field(pattern=r"^$|^https?://[^\s,]+(,https?://[^\s,]+)*$"), "a list of URLs"
]


class NodeSettings(BaseSettings):
    """What `Settings` has of nodes."""

    # Workers and nodes
    worker_concurrency: int = setting(
        1, "WORKER_CONCURRENCY", "MAX_CONCURRENT_TASKS", span=(1, 1024)
    )
    max_workers: int = setting(10, "MAX_WORKERS", span=(1, 10_000))
    worker_ports: alias.Ports = setting(
        "8092-8111", "MINDTRACE_CLUSTER__WORKER_PORTS_RANGE"
    )
    auto_scale_enabled: bool = setting(False, "AUTO_SCALE_ENABLED")
    auto_scale_wait_s: Seconds = setting(30.0, span=_WAIT)
    auto_scale_idle_s: Seconds = setting(300.0, span=_WAIT)
    auto_scale_cooldown_s: Seconds = setting(30.0, span=(0, _DAY_S))
    auto_scale_node_workers: int = setting(0, span=(0, 10_000))
    worker_registration_timeout_s: Seconds = setting(
        60.0, "WORKER_REGISTRATION_TIMEOUT", span=_WAIT
    )
    heartbeat_interval_s: Seconds = setting(30.0, "HEARTBEAT_INTERVAL", span=_WAIT)
    beat_s: Seconds = setting(5.0, span=_WAIT)
    suspect_after_s: Seconds = setting(15.0, span=_WAIT)
    lost_after_s: Seconds = setting(20.0, span=_WAIT)
    fence_after_s: Seconds = setting(90.0, span=_WAIT)
    no_overlap_kill_s: Seconds = setting(15.0, span=_WAIT)
    no_overlap_requeue_s: Seconds = setting(25.0, span=_WAIT)
    mass_loss_nodes: int = setting(4, span=_COUNT)
    mass_loss_share: float = setting(0.5, span=_SHARE)
    stale_node_after_s: Seconds = setting(7.0 * _DAY_S, span=_LONG)
    node_labels: _Pairs = setting("")
    node_taints: _Pairs = setting("")
    discovery: bool = setting(False)

    # Breakers and quarantine
    breaker_failures: int = setting(5, span=(1, 1000))
    breaker_window_s: Seconds = setting(300.0, span=_WAIT)
    breaker_cooldown_s: Seconds = setting(60.0, span=_WAIT)
    gpu_error_limit: int = setting(3, span=(1, 1000))
    gpu_error_window_s: Seconds = setting(600.0, span=_WAIT)
    gpu_probe_after_s: Seconds = setting(300.0, span=_WAIT)

    # Alerts
    alert_cpu_percent: float = setting(98.0, span=_PERCENT)
    alert_memory_percent: float = setting(90.0, span=_PERCENT)
    alert_disk_percent: float = setting(90.0, span=_PERCENT)
    alert_temperature_c: float = setting(87.0, span=(20, 150))
    alert_queue_depth: int = setting(10_000, span=_COUNT)
    alert_error_rate: float = setting(0.2, span=_SHARE)
    alert_after_s: Seconds = setting(60.0, span=(0, _DAY_S))
    alert_clear_share: float = setting(0.95, span=_SHARE)
    alert_webhooks: _Urls = setting("")

    # Those who listen to events
    event_listeners: int = setting(1000, span=_COUNT)
    event_listeners_per_client: int = setting(10, span=_COUNT)
    event_origins: _Urls = setting("")

    # A node shared with its owner
    owner_policy: Literal["off", "pause", "drain"] = setting("off")
    owner_gpu_percent: float = setting(20.0, span=_PERCENT)
    owner_gpu_memory_mb: float = setting(1024.0, span=(1, 1e7))
    owner_idle_s: Seconds = setting(600.0, span=(1, _DAY_S))
    owner_resume_s: Seconds = setting(60.0, span=(0, _DAY_S))
