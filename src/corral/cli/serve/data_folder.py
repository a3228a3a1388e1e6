"""What the manager keeps on disk: its secrets and keys, made at the first start."""

from __future__ import annotations

import logging
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from corral.errors import SettingsError

if TYPE_CHECKING:
    from corral.settings import Settings
    from corral.store.objects import ObjectStore, S3Access

log = logging.getLogger("corral")
SECRET_FILE = "cluster.secret"


@dataclass(frozen=True, slots=True)
class Files:
    """What the manager keeps on disk, ready before anything is served."""

    home: Path
    cluster_secret: bytes
    admin_key: str
    database_url: str
    redis_url: str
    objects: ObjectStore


def prepare(config: Settings) -> Files:
    """Make the data folder, the secrets of a first start, and read them."""
    from corral.core.access.key import write_key
    from corral.engine.celery_app import URL_FILE

    if config.database_url is None or config.redis_url is None:
        raise SettingsError(
            "the manager needs CORRAL_DATABASE_URL and CORRAL_REDIS_URL; "
            "'corral up' starts both by itself"
        )
    home = Path(config.home)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    admin = Path(config.admin_key_path)
    if not admin.exists():
        text = write_key(secrets.token_hex(6), secrets.token_urlsafe(32))
        _write_secret(admin, text)
        log.info("wrote the admin key to %s", admin)
    redis_url = config.redis_url.get_secret_value()
    _write_secret(home / URL_FILE, redis_url)
    return Files(
        home,
        _cluster_secret(home),
        admin.read_text(encoding="utf-8").strip(),
        config.database_url.get_secret_value(),
        redis_url,
        _objects(config),
    )


def _objects(config: Settings) -> ObjectStore:
    from corral.store.objects import open_objects

    # One request carries one object.
    limit = int(config.batch_body_limit)
    return open_objects(config.object_store, s3_access(config), limit)


def s3_access(config: Settings) -> S3Access:
    """Where S3 is, for objects and for models."""
    from corral.store.objects import S3Access

    access, secret = config.minio_access_key, config.minio_secret_key
    return S3Access(
        config.minio_endpoint,
        access.get_secret_value() if access else None,
        secret.get_secret_value() if secret else None,
    )


def _cluster_secret(home: Path) -> bytes:
    path = home / SECRET_FILE
    if not path.exists():
        _write_secret(path, secrets.token_hex(32))
    return bytes.fromhex(path.read_text().strip())


def _write_secret(path: Path, text: str) -> None:
    """Create or replace a file only its owner can read, never half written."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    draft.replace(path)
