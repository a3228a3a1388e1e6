"""Settings that are made of others when they are not given themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from platformdirs import user_data_path
from pydantic import SecretStr

# Values made of others when they are not given themselves.
MADE_OF = {
    "manager_url": ("host", "port", "ssl_cert_path"),
    "database_url": (
        "database_host",
        "database_port",
        "database_name",
        "database_user",
        "database_password",
    ),
    "redis_url": ("redis_host", "redis_port", "redis_db", "redis_password"),
    "object_store": ("minio_endpoint", "minio_bucket", "home"),
    "model_cache_dir": ("home",),
    "log_level": ("debug",),
}


HUB = "https://huggingface.co"


def hub_cache(_data: dict[str, Any]) -> Path:
    return Path.home() / ".cache" / "huggingface" / "hub"


def bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def user_home(_data: dict[str, Any]) -> Path:
    return user_data_path("corral", appauthor=False)


def model_cache(data: dict[str, Any]) -> Path:
    return Path(data["home"]) / "models"


def object_store(data: dict[str, Any]) -> str:
    if data["minio_endpoint"]:
        return f"s3://{data['minio_bucket']}"
    return str(Path(data["home"]) / "objects" / "blobs")


def log_level(data: dict[str, Any]) -> str:
    return "DEBUG" if data["debug"] else "INFO"


def manager_url(data: dict[str, Any]) -> str:
    # An address to listen on is not always one to call.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(data["host"], data["host"])
    scheme = "https" if data["ssl_cert_path"] else "http"
    return f"{scheme}://{bracket(host)}:{data['port']}"


def database_url(data: dict[str, Any]) -> SecretStr | None:
    if all(data[part] is None for part in MADE_OF["database_url"]):
        return None
    user = login(data["database_user"] or "postgres", data["database_password"])
    place = f"{bracket(data['database_host'] or 'localhost')}:"
    place += f"{data['database_port'] or 5432}"
    name = quote(data["database_name"] or "corral", safe="")
    return SecretStr(f"postgresql://{user}{place}/{name}")


def is_plain_beyond(url: str, is_loopback: Callable[[str], bool]) -> bool:
    """May a PostgreSQL beyond this machine be spoken to in plain text?"""
    if not url:
        return False
    parts = urlsplit(url)
    told = parse_qs(parts.query)
    if told.get("sslmode", ["prefer"])[-1] not in ("disable", "allow", "prefer"):
        return False
    named = parts.netloc.rpartition("@")[2] or ",".join(told.get("host", ()))
    # Several may be tried in turn; a path is a socket, and so is nothing at all.
    hosts = (unquote(host) for host in named.split(",") if host)
    return any(
        not (host.startswith("/") or is_loopback(_without_port(host))) for host in hosts
    )


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0].strip("[")
    return host.partition(":")[0] if host.count(":") == 1 else host


def redis_url(data: dict[str, Any]) -> SecretStr | None:
    if all(data[part] is None for part in MADE_OF["redis_url"]):
        return None
    place = f"{bracket(data['redis_host'] or 'localhost')}:{data['redis_port'] or 6379}"
    user = login("", data["redis_password"])
    return SecretStr(f"redis://{user}{place}/{data['redis_db'] or 0}")


def login(user: str, password: SecretStr | None) -> str:
    secret = f":{quote(password.get_secret_value(), safe='')}" if password else ""
    return f"{quote(user, safe='')}{secret}@" if user or secret else ""
