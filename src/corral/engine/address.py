"""Where a Redis is, by its URL in any of the spellings that others use."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where Redis is, without its credentials."""

    host: str | None
    port: int
    path: str | None
    database: int
    username: str | None
    password: str | None
    tls: bool

    @property
    def public_url(self) -> str:
        """The URL others may be shown: no user, no password."""
        if self.path:
            return f"redis+socket://{self.path}?virtual_host={self.database}"
        scheme = "rediss" if self.tls else "redis"
        return f"{scheme}://{self.host}:{self.port}/{self.database}"


def parse_address(url: str) -> RedisAddress:
    """Read a Redis URL in kombu's or redis-py's spelling."""
    parts = urlsplit(url)
    query = {k: v[-1] for k, v in parse_qs(parts.query).items()}
    is_socket = parts.scheme in ("redis+socket", "unix")
    number = query.get("virtual_host") or query.get("db") or ""
    if not is_socket and not number:
        number = parts.path.strip("/")
    return RedisAddress(
        host=None if is_socket else (parts.hostname or "127.0.0.1"),
        port=parts.port or 6379,
        path=parts.path if is_socket else None,
        database=int(number or 0),
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        tls=parts.scheme == "rediss",
    )
