"""The settings: every one declared here, read once at start, frozen afterwards.

The only reader of the environment, of `.env` and of `corral.toml`. Nothing is read at
import; `load` does it, nearest first: flags, environment, `.env`, `corral.toml`,
defaults. What each setting is for stands in docs/settings.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import (
    ByteSize,
    Field,
    ModelWrapValidatorHandler,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from corral.errors import SettingsError
from corral.settings import derived as made
from corral.settings import sources as alias
from corral.settings.node import NodeSettings
from corral.settings.sources import Origin, Place, Seconds, setting

_DAY_S = 86_400
_PORT = (1, 65_535)
_COUNT = (1, 1_000_000)
_WAIT = (0.1, _DAY_S)
_KEEP = (60, 3650 * _DAY_S)
_SIZE = (1024, 1 << 30)
_SHARE = (0.01, 1)
Strategy = Literal["smith", "least_loaded", "weighted_round_robin", "affinity"]
_DEPOT = r"^(s3://[^/\s]\S*|/.*|([A-Za-z]:)?[^:]*)$"

_TLS = ("ssl_cert_path", "ssl_key_path")
# Each pair in this order, or leases would end before they can be renewed.
_RISING = (
    ("beat_s", "suspect_after_s"),
    ("suspect_after_s", "lost_after_s"),
    ("no_overlap_kill_s", "no_overlap_requeue_s"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One setting as `corral config` shows it; `value` has nothing secret in it."""

    name: str
    variable: str
    value: str | int | float | bool | None
    origin: str


def is_loopback(host: str) -> bool:
    """Does listening on `host` reach this machine only?"""
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address.is_loopback


class Settings(NodeSettings):
    """Every setting, with its final value; made by `load`."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=False,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )

    # Which cluster, and where it lives
    home: Place = setting(made.user_home)
    cluster_name: alias.Name = setting("corral")
    node_name: alias.Name | None = setting(None)
    agent_workers: str = setting("[]")

    # Manager
    host: alias.Host = setting("127.0.0.1", "CLUSTER_MANAGER_HOST", "API_HOST")
    port: int = setting(8002, "CLUSTER_MANAGER_PORT", "API_PORT", span=_PORT)
    ssl_cert_path: Place | None = setting(None, "CORRAL_TLS_CERT", "SSL_CERT_PATH")
    ssl_key_path: Place | None = setting(None, "CORRAL_TLS_KEY", "SSL_KEY_PATH")
    manager_url: alias.HttpUrl = setting(made.manager_url, "CLUSTER_MANAGER_URL")
    allow_plaintext: bool = setting(False)
    insecure: bool = setting(False)
    gateway_allow: alias.Targets = setting(())
    drain_timeout_s: Seconds = setting(300.0, span=(0, _DAY_S))

    # Keys
    api_key: alias.ApiKey | None = setting(None)
    join_token: alias.ApiKey | None = setting(None)
    bootstrap_api_key: alias.ApiKey | None = setting(None, "API_KEY")
    rate_limit_per_s: float = setting(1000.0, span=(0.001, 1e6))
    rate_burst: int = setting(2000, span=_COUNT)
    failed_auth_per_min: int = setting(10, span=_COUNT)
    metrics_public: bool = setting(False)

    # PostgreSQL and Redis
    database_host: alias.Host | None = setting(None, "CLUSTER_DB_HOST")
    database_port: int | None = setting(None, "CLUSTER_DB_PORT", span=_PORT)
    database_name: str | None = setting(None, "CLUSTER_DB_NAME")
    database_user: str | None = setting(None, "CLUSTER_DB_USER")
    database_password: SecretStr | None = setting(None, "CLUSTER_DB_PASSWORD")
    database_url: alias.PostgresUrl | None = setting(made.database_url)
    database_pool_size: int = setting(8, "CLUSTER_DB_POOL_MAX", span=(1, 1000))
    redis_host: alias.Host | None = setting(None, "REDIS_HOST")
    redis_port: int | None = setting(None, "REDIS_PORT", span=_PORT)
    redis_db: int | None = setting(None, "REDIS_DB", span=(0, 65_535))
    redis_password: SecretStr | None = setting(None, "REDIS_PASSWORD")
    redis_url: alias.RedisUrl | None = setting(
        made.redis_url,
        "REDIS_URL",
        "MINDTRACE_CLUSTER__DEFAULT_REDIS_URL",
        "MINDTRACE_WORKER__DEFAULT_REDIS_URL",
    )
    wait_for_stores_s: Seconds = setting(30.0, span=(0, _DAY_S))
    celery_result_backend: SecretStr | None = setting(None, "CELERY_RESULT_BACKEND")
    worker_send_task_events: bool = setting(False)

    # Messages of Celery clients
    celery_ingress: bool = setting(False)
    celery_broker_url: SecretStr | None = setting(None, "CELERY_BROKER_URL")
    celery_queues: str = setting("celery")
    celery_tasks: str = setting("")
    celery_track_started: bool = setting(False)

    # Object store
    minio_endpoint: alias.Endpoint | None = setting(
        None, "MINDTRACE_CLUSTER__MINIO_ENDPOINT"
    )
    minio_access_key: SecretStr | None = setting(
        None, "MINDTRACE_CLUSTER__MINIO_ACCESS_KEY"
    )
    minio_secret_key: SecretStr | None = setting(
        None, "MINDTRACE_CLUSTER__MINIO_SECRET_KEY"
    )
    minio_bucket: alias.Name = setting("workers", "MINDTRACE_CLUSTER__MINIO_BUCKET")
    object_store: Annotated[
        str, Field(pattern=_DEPOT), "a folder, or like s3://bucket/prefix"
    ] = setting(made.object_store)

    # Code of workers and scripts
    cache_limit_gb: float = setting(20.0, span=(0.1, 1e6))
    artifact_limit_gb: float = setting(10.0, span=(0.001, 1e6))
    result_cache_mb: float = setting(256.0, span=(0, 1e6))
    checkpoint_s: Seconds = setting(30.0, span=(1, _DAY_S))
    git_allow_file: bool = setting(False)
    git_tokens: SecretStr | None = setting(None)
    container_host: str | None = setting(None, "DOCKER_HOST")
    container_network: bool = setting(False)
    container_pull: bool = setting(True)
    allowed_volumes: alias.Paths = setting(())
    allowed_devices: alias.Paths = setting(())

    # Models and GPUs
    model_cache_dir: Place = setting(
        made.model_cache, "MODEL_CACHE_DIR", "CORRAL_MODEL_DIR"
    )
    model_manager_url: alias.HttpUrl | None = setting(None, "MODEL_MANAGER_URL")
    model_manager_path: Place | None = setting(None, "MODEL_MANAGER_PATH")
    model_hub_url: alias.HttpUrl = setting(made.HUB, "HF_ENDPOINT")
    model_hub_cache: Place = setting(made.hub_cache, "HF_HUB_CACHE")
    model_hub_token: SecretStr | None = setting(None, "HF_TOKEN")
    model_disk_gb: float = setting(50.0, "MAX_MODEL_CACHE_SIZE_GB", span=(0.001, 1e6))
    model_peers: bool = setting(False)
    model_peer_port: int = setting(0, span=(0, 65_535))
    model_cache_size: int = setting(5, "MODEL_CACHE_SIZE", span=_COUNT)
    model_idle_s: Seconds = setting(0.0, span=(0, _KEEP[1]))
    model_load_timeout_s: Seconds = setting(300.0, "MODEL_LOAD_TIMEOUT", span=_WAIT)
    gpu_devices: alias.Devices = setting(None, "GPU_DEVICES")
    simulated_gpus: Annotated[
        str,
        Field(pattern=r"(?i)^((([1-9]\d{0,2}x)?[1-9]\d{0,5}(\.\d+)?[MG]B)(,|$))*$"),
        "a list like 2x24GB,1x8GB",
    ] = setting("")
    gpu_memory_fraction: float = setting(0.9, "GPU_MEMORY_FRACTION", span=_SHARE)
    gpu_memory_threshold: float = setting(0.8, "GPU_MEMORY_THRESHOLD", span=_SHARE)

    # Neighbours
    task_manager_url: alias.HttpUrl | None = setting(None, "TASK_MANAGER_URL")
    task_manager_key: alias.ApiKey | None = setting(None)
    task_manager_label: Annotated[
        str | None, Field(pattern=r"^[^:\s]+:.+$"), "a label like origin:portal"
    ] = setting(None)
    otlp_endpoint: alias.HttpUrl | None = setting(None, "OTEL_EXPORTER_OTLP_ENDPOINT")
    otlp_headers: SecretStr | None = setting(None, "OTEL_EXPORTER_OTLP_HEADERS")
    otlp_service: str = setting("corral", "OTEL_SERVICE_NAME")
    otlp_ratio: float = setting(1.0, span=(0, 1))

    # Tasks
    task_timeout_s: Seconds = setting(300.0, "TASK_TIMEOUT", span=(0.1, _KEEP[1]))
    task_body_limit: ByteSize = setting(1 << 20, span=_SIZE)
    batch_body_limit: ByteSize = setting(16 << 20, span=_SIZE)
    retry_base_s: Seconds = setting(1.0, span=_WAIT)
    retry_cap_s: Seconds = setting(100.0, span=_WAIT)
    max_losses: int = setting(3, span=(1, 1000))
    order_max_tasks: int = setting(200, span=(1, 10_000))
    order_budget_ms: float = setting(20.0, span=(0.1, 60_000))
    overrun_ms: float = setting(50.0, span=(1, 60_000))

    # Retention and logs
    keep_tasks_s: Seconds = setting(30.0 * _DAY_S, span=_KEEP)
    keep_events_s: Seconds = setting(30.0 * _DAY_S, span=_KEEP)
    keep_samples_s: Seconds = setting(1.0 * _DAY_S, span=_KEEP)
    keep_minutes_s: Seconds = setting(7.0 * _DAY_S, span=_KEEP)
    keep_hours_s: Seconds = setting(365.0 * _DAY_S, span=_KEEP)
    keep_audit_s: Seconds = setting(365.0 * _DAY_S, span=_KEEP)
    keep_objects_s: Seconds = setting(7.0 * _DAY_S, span=_KEEP)
    log_limit_mb: float = setting(8.0, span=(0.01, 10_000))
    strategy: Strategy = setting("smith")
    eviction: Literal["gdsf", "lru"] = setting("gdsf")
    preemption: bool = setting(False)
    prefetch: Literal["off", "rate", "pattern"] = setting("off")
    journal_events: int = setting(100_000, span=(0, 10_000_000))
    log_format: Literal["json", "text"] = setting("json", "LOG_FORMAT")
    debug: bool = setting(False, "DEBUG")
    log_level: alias.Level = setting(made.log_level, "LOG_LEVEL")

    # Facts about the reading, not settings: see `origin` and `unknown`.
    origins: dict[str, Origin] = Field(default_factory=dict, repr=False)
    strangers: dict[str, str] = Field(default_factory=dict, repr=False)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *_unused: PydanticBaseSettingsSource,
        **_also_unused: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Our layers instead of the library's: those know no order of names."""
        assert isinstance(init_settings, InitSettingsSource)
        return alias.layers(settings_cls, init_settings.init_kwargs)

    @model_validator(mode="wrap")
    @classmethod
    def _name_the_culprit(
        cls, data: Any, handler: ModelWrapValidatorHandler[Settings]
    ) -> Settings:
        try:
            return handler(data)
        except ValidationError as error:
            name = str(error.errors()[0]["loc"][0])
            field = cls.model_fields[name]
            allowed, secret = alias.allowed_of(field), alias.is_secret(field)
            origin: Origin = data["origins"][name]
            raise alias.refusal(origin, data[name], allowed, secret) from None

    @field_validator("database_url", "redis_url")
    @classmethod
    def _add_password(
        cls, url: SecretStr | None, info: ValidationInfo
    ) -> SecretStr | None:
        """A URL without a password takes the one that was given apart from it."""
        name = str(info.field_name).replace("_url", "_password")
        password = info.data.get(name)
        parts = urlsplit(url.get_secret_value()) if url else None
        if parts is None or password is None or parts.password or not parts.hostname:
            return url
        place = parts.netloc.rpartition("@")[2]
        login = made.login(unquote(parts.username or ""), password)
        return SecretStr(parts._replace(netloc=login + place).geturl())

    @model_validator(mode="after")
    def _check_together(self) -> Settings:
        for low, high in _RISING:
            if getattr(self, low) >= getattr(self, high):
                name, other = (high, low) if high in self.origins else (low, high)
                word = "more than" if name == high else "less than"
                limit = f"{self.variable(other)}={getattr(self, other):.12g}"
                raise self._refusal(name, f"{word} {limit}")
        for name, other in (_TLS, _TLS[::-1]):
            if getattr(self, name) and not getattr(self, other):
                raise self._refusal(name, f"given together with {self.variable(other)}")
        if self.insecure and not is_loopback(self.host):
            raise self._refusal(
                "host", "127.0.0.1 when keys are switched off (insecure)"
            )
        return self

    def origin(self, name: str) -> str:
        """`default`, `corral.toml`, `.env`, `environment REDIS_URL` or `flag`.

        For a value made of others, where those came from.
        """
        made_of = (name,) if name in self.origins else made.MADE_OF.get(name, ())
        found = dict.fromkeys(
            str(self.origins[p]) for p in made_of if p in self.origins
        )
        return ", ".join(found) or alias.DEFAULT

    def variable(self, name: str) -> str:
        """The name the value was given under, else the one it could be given under."""
        if name in self.origins:
            return self.origins[name].variable
        return alias.variables(name, type(self).model_fields[name])[0]

    def rows(self) -> list[Row]:
        return [
            Row(n, self.variable(n), alias.shown(getattr(self, n)), self.origin(n))
            for n in alias.declared(type(self))
        ]

    @property
    def unknown(self) -> tuple[str, ...]:
        """A warning for each CORRAL_* variable or key that is not a setting."""
        return tuple(self.strangers.values())

    @property
    def admin_key_path(self) -> Path:
        """Where the first start writes the admin key, and clients look for one."""
        return self.home / "admin.key"

    def require_loopback_or_tls(self) -> None:
        """Raises SettingsError when listening on `host` would expose plain text."""
        for name in _TLS:
            path = getattr(self, name)
            if path is not None and not path.is_file():
                raise self._refusal(name, "a readable file")
        if self.ssl_cert_path or self.allow_plaintext or is_loopback(self.host):
            return
        raise self._refusal(
            "host",
            "a loopback address such as 127.0.0.1, unless a TLS certificate is given"
            " (CORRAL_SSL_CERT_PATH) or plain text allowed (CORRAL_ALLOW_PLAINTEXT)",
        )

    def _refusal(self, name: str, allowed: str) -> SettingsError:
        origin = self.origins.get(name) or Origin(alias.DEFAULT, self.variable(name))
        secret = alias.is_secret(type(self).model_fields[name])
        return alias.refusal(origin, getattr(self, name), allowed, secret)


def load(**flags: Any) -> Settings:
    """Read every source once; a flag that is None counts as not given.

    Raises:
        SettingsError: One line naming the variable, its value and what is allowed.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    if strange := given.keys() - alias.declared(Settings).keys():
        raise TypeError(f"no such setting: {', '.join(sorted(strange))}")
    return Settings(**given)


def secret_variables() -> frozenset[str]:
    """Every variable that may hold a secret: what user code must not inherit."""
    return frozenset(
        variable
        for name in alias.secrets(Settings)
        for variable in alias.variables(name, Settings.model_fields[name])
    )
