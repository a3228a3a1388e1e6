"""Keys, secrets of jobs, join tokens and links as answers show them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from corral.core.access.audit import AuditRow
from corral.wire.value import PlainValue, Value


class JoinTokenInfo(Value, frozen=True, kw_only=True):
    """A token without its text, and what it grants the nodes that join with it.

    `status` is valid, used, expired or revoked.
    """

    token_id: str
    status: str = ""
    uses_left: int | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    labels: dict[str, str] = {}
    taints: list[str] = []
    job_types: list[str] = []


class JoinTokenList(Value, frozen=True, kw_only=True):
    tokens: list[JoinTokenInfo]


class JoinToken(Value, frozen=True, kw_only=True):
    """`token` is what a machine shows to join; nobody can ask for it again."""

    token: str
    expires_at: datetime | None = None
    uses: int | None = None
    token_id: str = ""


class KeyInfo(Value, frozen=True, kw_only=True):
    """A key without its text; tasks submitted with it are `owner`'s.

    `role` is read, submit, operate or admin; `status` valid, expired or revoked.
    """

    key_id: str
    name: str
    owner: str = ""
    role: str = ""
    status: str = ""
    created_at: datetime | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None


class KeyList(Value, frozen=True, kw_only=True):
    keys: list[KeyInfo]


class NewKey(KeyInfo, frozen=True, kw_only=True):
    """`key` is what to show the manager; nobody can ask for it again."""

    key: str


@dataclass(frozen=True, slots=True)
class AuditEntry(PlainValue, AuditRow):
    """`actor` is the id of a key, `name` what that is called."""

    name: str = ""


class AuditPage(Value, frozen=True, kw_only=True):
    """Newest first; `cursor` leads to those before, if there are any.

    `is_intact` and `checked_at` are of the last look at the chain.
    """

    rows: list[AuditEntry]
    cursor: int | None = None
    is_intact: bool | None = None
    checked_at: datetime | None = None


class AuditCheck(Value, frozen=True, kw_only=True):
    """What a look through the whole chain found; `fault` says how it is broken.

    Rows before `keyed_from` were written by a release whose hashes had no key.
    """

    is_intact: bool
    first_seq: int
    last_seq: int
    keyed_from: int = 0
    fault: str = ""


class SecretInfo(Value, frozen=True, kw_only=True):
    """A secret without its value; who may have it where, everybody when empty."""

    name: str
    job_types: list[str] = []
    keys: list[str] = []
    node_labels: dict[str, str] = {}
    created_at: datetime | None = None
    updated_at: datetime | None = None


class SecretList(Value, frozen=True, kw_only=True):
    secrets: list[SecretInfo]


class WebhookSecret(Value, frozen=True, kw_only=True):
    """What signs the calls of webhooks."""

    secret: str


class DashboardLink(Value, frozen=True, kw_only=True):
    """`path`, after the manager's URL, signs in whoever opens it first."""

    path: str
    expires_in_s: float
