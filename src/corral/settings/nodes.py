"""Nodes, their workers and their GPUs.

Part of `Settings`; what each is for stands in docs/settings.md. Nothing is read here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import BaseSettings

from corral.settings import sources as alias
from corral.settings.sources import Seconds, setting

_PAIR = r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?(=[A-Za-z0-9._/-]{0,63})?"
_Pairs = Annotated[
    str, Field(pattern=rf"^$|^{_PAIR}(,{_PAIR})*$"), "a list like rack=a,disk=ssd"
]


class NodeSettings(BaseSettings):
    """What `Settings` has of nodes."""

    # Workers
    worker_env: alias.Names = setting(())
    worker_concurrency: int = setting(
        1, "WORKER_CONCURRENCY", "MAX_CONCURRENT_TASKS", span=(1, 1024)
    )
    max_workers: int = setting(10, "MAX_WORKERS", span=(1, 10_000))
    worker_ports: alias.Ports = setting(
        "8092-8111", "MINDTRACE_CLUSTER__WORKER_PORTS_RANGE"
    )
    auto_scale_enabled: bool = setting(False, "AUTO_SCALE_ENABLED")
    auto_scale_wait_s: Seconds = setting(30.0, span=alias.WAIT)
    auto_scale_idle_s: Seconds = setting(300.0, span=alias.WAIT)
    auto_scale_cooldown_s: Seconds = setting(30.0, span=(0, alias.DAY_S))
    auto_scale_node_workers: int = setting(0, span=(0, 10_000))
    worker_registration_timeout_s: Seconds = setting(
        60.0, "WORKER_REGISTRATION_TIMEOUT", span=alias.WAIT
    )

    # Beats, and who is lost
    heartbeat_interval_s: Seconds = setting(30.0, "HEARTBEAT_INTERVAL", span=alias.WAIT)
    beat_s: Seconds = setting(5.0, span=alias.WAIT)
    suspect_after_s: Seconds = setting(15.0, span=alias.WAIT)
    lost_after_s: Seconds = setting(20.0, span=alias.WAIT)
    fence_after_s: Seconds = setting(90.0, span=alias.WAIT)
    no_overlap_kill_s: Seconds = setting(15.0, span=alias.WAIT)
    no_overlap_requeue_s: Seconds = setting(25.0, span=alias.WAIT)
    mass_loss_nodes: int = setting(4, span=alias.COUNT)
    mass_loss_share: float = setting(0.5, span=alias.SHARE)
    stale_node_after_s: Seconds = setting(7.0 * alias.DAY_S, span=alias.LONG)

    drain_timeout_s: Seconds = setting(300.0, span=(0, alias.DAY_S))

    # What a node says of itself
    node_name: alias.Name | None = setting(None)
    agent_workers: str = setting("[]")
    node_labels: _Pairs = setting("")
    node_taints: _Pairs = setting("")

    # GPUs
    gpu_devices: alias.Devices = setting(None, "GPU_DEVICES")
    simulated_gpus: Annotated[
        str,
        Field(pattern=r"(?i)^((([1-9]\d{0,2}x)?[1-9]\d{0,5}(\.\d+)?[MG]B)(,|$))*$"),
        "a list like 2x24GB,1x8GB",
    ] = setting("")
    gpu_memory_fraction: float = setting(0.9, "GPU_MEMORY_FRACTION", span=alias.SHARE)
    gpu_memory_threshold: float = setting(0.8, "GPU_MEMORY_THRESHOLD", span=alias.SHARE)
    gpu_error_limit: int = setting(3, span=(1, 1000))
    gpu_error_window_s: Seconds = setting(600.0, span=alias.WAIT)
    gpu_probe_after_s: Seconds = setting(300.0, span=alias.WAIT)

    # Breakers of workers that die
    breaker_failures: int = setting(5, span=(1, 1000))
    breaker_window_s: Seconds = setting(300.0, span=alias.WAIT)
    breaker_cooldown_s: Seconds = setting(60.0, span=alias.WAIT)

    # A node shared with its owner
    owner_policy: Literal["off", "pause", "drain"] = setting("off")
    owner_gpu_percent: float = setting(20.0, span=alias.PERCENT)
    owner_gpu_memory_mb: float = setting(1024.0, span=(1, 1e7))
    owner_idle_s: Seconds = setting(600.0, span=(1, alias.DAY_S))
    owner_resume_s: Seconds = setting(60.0, span=(0, alias.DAY_S))
