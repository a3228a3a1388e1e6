"""Credentials: what a key may do, and how one is written and checked."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from corral.core.nodes.labels import check_label, check_taint
from corral.core.tasks.job_type import check_name
from corral.errors import ClaimRefused, InvalidField

PREFIX = "corral"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# Nobody is to be taken for Corral itself, or for those who came without a key.
_TAKEN = frozenset({"corral", "insecure"})


# Labels in which a node says where it answers; no task is placed by them.
_OWN = frozenset({"url", "worker_ports"})


class Scope(StrEnum):
    READ = "read"
    SUBMIT = "submit"
    OPERATE = "operate"
    ADMIN = "admin"
    NODE = "node"
    JOIN = "join"


PEOPLE = frozenset({Scope.READ, Scope.SUBMIT, Scope.OPERATE, Scope.ADMIN})
"""What a person's key may do, each more than the one before."""
_INCLUDES = {
    Scope.ADMIN: {Scope.ADMIN, Scope.OPERATE, Scope.SUBMIT, Scope.READ},
    Scope.OPERATE: {Scope.OPERATE, Scope.SUBMIT, Scope.READ},
    Scope.SUBMIT: {Scope.SUBMIT, Scope.READ},
    Scope.READ: {Scope.READ},
    Scope.NODE: {Scope.NODE},
    Scope.JOIN: {Scope.JOIN},
}


@dataclass(frozen=True, slots=True)
class JoinGrant:
    """What a join token says of the node it makes.

    Labels and taints are the node's, whatever it says; it can claim no other labels.
    Workers of its own serve these job types alone, or any when none are named.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    job_types: tuple[str, ...] = ()

    def check(self) -> None:
        """Raises InvalidField for what no node could have."""
        for key, value in self.labels.items():
            check_label(key, value, "labels")
        for taint in self.taints:
            check_taint(taint, "taints")
        for job_type in self.job_types:
            check_name(job_type, "job_types")

    def check_claim(self, labels: Mapping[str, str], job_types: Iterable[str]) -> None:
        """Raises ClaimRefused where a node says more of itself than this allows."""
        more = labels.items() - self.labels.items()
        names = sorted(f"{key}={value}" for key, value in more if key not in _OWN)
        if names:
            raise ClaimRefused(
                f"this node's join token does not allow it the label(s) "
                f"{', '.join(names)}: leave them out, or join with a token of "
                "'corral token create --label'",
                labels=names,
            )
        types = sorted(set(job_types) - set(self.job_types)) if self.job_types else []
        if types:
            raise ClaimRefused(
                f"this node's join token allows workers of {', '.join(self.job_types)} "
                f"and not of {', '.join(types)}: choose them with --worker or "
                "--no-worker, or join with a token of 'corral token create --type'",
                job_types=types,
            )


@dataclass(frozen=True, slots=True)
class Key:
    """A stored credential; only the SHA-256 of its secret is kept.

    `granted` is of join tokens and of the keys of nodes they made; None lets a node
    say of itself what it likes.
    """

    id: str
    digest: str
    scope: Scope
    name: str = ""
    node_id: str | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    uses_left: int | None = None
    last_used_at: datetime | None = None
    granted: JoinGrant | None = None

    @property
    def owner(self) -> str:
        """Whose the tasks are that are submitted with it: its name, if it has one."""
        is_named = self.scope in PEOPLE and _NAME.fullmatch(self.name)
        return self.name if is_named else self.id

    def allows(self, scope: Scope) -> bool:
        return scope in _INCLUDES[self.scope]

    def is_valid(self, now: datetime) -> bool:
        expired = self.expires_at is not None and now >= self.expires_at
        return self.revoked_at is None and not expired and self.uses_left != 0


def check_key_name(name: str) -> None:
    """Raises InvalidField when nobody's key can have this name."""
    if not _NAME.fullmatch(name) or name in _TAKEN:
        raise InvalidField(
            "name must be 1-63 of letters, digits, '.', '_' or '-', starting with a "
            "letter or digit, and not corral or insecure",
            field="name",
        )


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


def join_proof(digest: str, token_id: str, nonce: str, addresses: Iterable[str]) -> str:
    """By which a manager shows that it knows a join token, before it is sent one.

    Its key is what the manager keeps of the token, and whoever has the token can make.
    The manager's own addresses are part of it: somebody between the two who passes the
    question on gets an answer that is true of another address.
    """
    text = "\n".join(("corral join", token_id, nonce, *addresses))
    return hmac.new(digest.encode(), text.encode(), "sha256").hexdigest()
