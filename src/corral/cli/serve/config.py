"""From settings to what the manager is told at its start."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from corral.cli.serve.data_folder import s3_access
from corral.errors import SettingsError

if TYPE_CHECKING:
    from corral.api.site import SiteRules
    from corral.manager.alerts.alerts import AlertConfig
    from corral.manager.config import ManagerConfig
    from corral.manager.events.listener import LiveConfig
    from corral.manager.models.sources import SourceConfig
    from corral.manager.nodes.liveness import Liveness
    from corral.manager.outbound.address import GatewayConfig
    from corral.manager.outbound.task_service import TaskServiceConfig
    from corral.manager.tracing import TraceConfig
    from corral.manager.workers.scaling import ScalingConfig
    from corral.settings import Settings

_HEADER = re.compile(r"([\w-]+) *= *([ -~]*)", re.ASCII)


def manager_config(config: Settings, cluster_secret: bytes) -> ManagerConfig:
    from corral.cli.serve.machine import master_config
    from corral.core.tasks.outcome import RetryPolicy
    from corral.manager.access.rate_limit import RateLimits
    from corral.manager.config import ManagerConfig
    from corral.manager.models.memory import ModelConfig
    from corral.scheduler.scheduler import Policy
    from corral.store.base import Retention

    return ManagerConfig(
        cluster_secret=cluster_secret,
        cluster_name=config.cluster_name,
        public_url=config.manager_url if "manager_url" in config.origins else "",
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
        limits=RateLimits(
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
        neighbour=task_service_config(config),
        traces=trace_config(config),
        master=master_config(config),
    )


def site_rules(config: Settings) -> SiteRules:
    """The names this manager goes by: those it is given, and those it has anyway."""
    from corral.api.site import SiteRules
    from corral.settings import is_loopback

    public = urlsplit(config.manager_url)
    names = {config.host.lower(), public.hostname or ""}
    names |= {name.removeprefix("*") for name in config.allowed_hosts}
    is_exposed = not is_loopback(config.host)
    if is_exposed:
        machine = socket.gethostname().lower()
        names |= {machine, f"{machine.partition('.')[0]}.local"}
    if config.ssl_cert_path is not None:
        names |= _certified(config.ssl_cert_path)
    return SiteRules(
        frozenset(name for name in names if name),
        any_address=is_exposed,
        origins=frozenset({f"{public.scheme}://{public.netloc.lower()}"}),
        is_https=public.scheme == "https",
    )


def _certified(path: Path) -> set[str]:
    """The names a certificate is made out for; none where it cannot be read, which
    the server says better.
    """
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
        kind = x509.SubjectAlternativeName
        told = found.extensions.get_extension_for_class(kind).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return set()
    return {
        name.lower().removeprefix("*")
        for name in told.get_values_for_type(x509.DNSName)
    }


def liveness(config: Settings) -> Liveness:
    """When nodes are suspect or lost, and when that is not believed."""
    from corral.manager.nodes.liveness import Liveness

    return Liveness(
        suspect_s=config.suspect_after_s,
        lost_s=config.lost_after_s,
        mass_loss_nodes=config.mass_loss_nodes,
        register_s=config.worker_registration_timeout_s,
        mass_loss_share=config.mass_loss_share,
        no_overlap_kill_s=config.no_overlap_kill_s,
        no_overlap_requeue_s=config.no_overlap_requeue_s,
        beat_s=config.beat_s,
    )


def source_config(config: Settings) -> SourceConfig:
    """Folders, the hub, S3 and a model manager, as far as they are named."""
    from corral.manager.models.sources import SourceConfig

    token = config.model_hub_token
    return SourceConfig(
        (config.model_cache_dir,),
        config.model_hub_url,
        config.model_hub_cache,
        s3_access(config),
        config.model_manager_url,
        config.model_manager_path,
        token.get_secret_value() if token else None,
        config.model_buckets,
    )


def task_service_config(config: Settings) -> TaskServiceConfig | None:
    """The task service to tell of tasks, when one is named."""
    from corral.manager.outbound.task_service import TaskServiceConfig

    if config.task_manager_url is None:
        return None
    key, label = config.task_manager_key, config.task_manager_label
    name, _, value = (label or "").partition(":")
    return TaskServiceConfig(
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


def scaling_config(config: Settings) -> ScalingConfig:
    from corral.manager.workers.scaling import ScalingConfig
    from corral.scheduler.scaling.values import ScalingPolicy

    return ScalingConfig(
        config.auto_scale_enabled,
        ScalingPolicy(
            config.auto_scale_wait_s,
            config.auto_scale_idle_s,
            config.auto_scale_cooldown_s,
            config.max_workers,
        ),
        config.auto_scale_node_workers,
    )


def alert_config(config: Settings) -> AlertConfig:
    """When something is wrong, for how long, and who is told."""
    from corral.core.insight.health import Thresholds
    from corral.manager.alerts.alerts import AlertConfig

    hooks = config.alert_webhooks
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
        tuple(hooks.get_secret_value().split(",")) if hooks else (),
    )


def live_config(config: Settings) -> LiveConfig:
    """How many may listen to events, and from which pages."""
    from corral.manager.events.listener import LiveConfig

    origins = config.event_origins.split(",")
    return LiveConfig(
        listeners=config.event_listeners,
        per_client=config.event_listeners_per_client,
        origins=tuple(origin.rstrip("/") for origin in origins if origin),
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
