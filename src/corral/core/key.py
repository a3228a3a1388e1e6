"""Credentials: what a key may do, and how one is written and checked."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

PREFIX = "corral"


class Scope(StrEnum):
    READ = "read"
    SUBMIT = "submit"
    OPERATE = "operate"
    ADMIN = "admin"
    NODE = "node"
    JOIN = "join"


_INCLUDES = {
    Scope.ADMIN: {Scope.ADMIN, Scope.OPERATE, Scope.SUBMIT, Scope.READ},
    Scope.OPERATE: {Scope.OPERATE, Scope.SUBMIT, Scope.READ},
    Scope.SUBMIT: {Scope.SUBMIT, Scope.READ},
    Scope.READ: {Scope.READ},
    Scope.NODE: {Scope.NODE},
    Scope.JOIN: {Scope.JOIN},
}


@dataclass(frozen=True, slots=True)
class Key:
    """A stored credential; only the SHA-256 of its secret is kept."""

    id: str
    digest: str
    scope: Scope
    name: str = ""
    node_id: str | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    uses_left: int | None = None

    def allows(self, scope: Scope) -> bool:
        return scope in _INCLUDES[self.scope]

    def is_valid(self, now: datetime) -> bool:
        expired = self.expires_at is not None and now >= self.expires_at
        return self.revoked_at is None and not expired and self.uses_left != 0


def write_key(key_id: str, secret: str) -> str:
    """The text a user carries: prefix, id, secret."""
    return f"{PREFIX}_{key_id}_{secret}"


def split_key(text: str) -> tuple[str, str] | None:
    """(id, secret) of a key text, or None when it is not one."""
    parts = text.split("_", 2)
    if len(parts) != 3 or parts[0] != PREFIX or not parts[1] or not parts[2]:
        return None
    return parts[1], parts[2]


def digest_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def matches(key: Key, secret: str) -> bool:
    return hmac.compare_digest(key.digest, digest_secret(secret))
