"""PostgreSQL, Redis, the object store, and messages of Celery clients.

Part of `Settings`; what each is for stands in docs/settings.md. Nothing is read here.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings

from corral.settings import derived as made
from corral.settings import sources as alias
from corral.settings.sources import Seconds, setting

_DEPOT = r"^(s3://[^/\s]\S*|/.*|([A-Za-z]:)?[^:]*)$"


class StoreSettings(BaseSettings):
    """What `Settings` has of the services that Corral stands on."""

    # PostgreSQL
    database_host: alias.Host | None = setting(None, "CLUSTER_DB_HOST")
    database_port: int | None = setting(None, "CLUSTER_DB_PORT", span=alias.PORT)
    database_name: str | None = setting(None, "CLUSTER_DB_NAME")
    database_user: str | None = setting(None, "CLUSTER_DB_USER")
    database_password: SecretStr | None = setting(None, "CLUSTER_DB_PASSWORD")
    database_url: alias.PostgresUrl | None = setting(made.database_url)
    database_plaintext: bool = setting(False)
    database_pool_size: int = setting(8, "CLUSTER_DB_POOL_MAX", span=(1, 1000))

    # Redis
    redis_host: alias.Host | None = setting(None, "REDIS_HOST")
    redis_port: int | None = setting(None, "REDIS_PORT", span=alias.PORT)
    redis_db: int | None = setting(None, "REDIS_DB", span=(0, 65_535))
    redis_password: SecretStr | None = setting(None, "REDIS_PASSWORD")
    redis_url: alias.RedisUrl | None = setting(
        made.redis_url,
        "REDIS_URL",
        "MINDTRACE_CLUSTER__DEFAULT_REDIS_URL",
        "MINDTRACE_WORKER__DEFAULT_REDIS_URL",
    )
    redis_trusted: bool = setting(False)
    wait_for_stores_s: Seconds = setting(30.0, span=(0, alias.DAY_S))

    # Celery
    celery_result_backend: SecretStr | None = setting(None, "CELERY_RESULT_BACKEND")
    worker_send_task_events: bool = setting(False)
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
