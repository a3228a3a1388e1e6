"""The calls about keys of people: make, list, revoke. Only an admin's key may."""

from __future__ import annotations

from datetime import datetime

import msgspec

from corral.client.exchange import Flow, Request, get, segment
from corral.client.fault import decode
from corral.client.payload import encode
from corral.client.value import Value


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


class NewKey(KeyInfo, frozen=True, kw_only=True):
    """`key` is what to show the manager; nobody can ask for it again."""

    key: str


class _Keys(msgspec.Struct):
    keys: list[KeyInfo]


def keys() -> Flow[list[KeyInfo]]:
    """Every key of a person, by name."""
    response = yield get("/keys")
    return decode(response, _Keys).keys


def create_key(
    name: str, *, role: str = "submit", ttl_s: float | None = None
) -> Flow[NewKey]:
    """Make a key for somebody; its tasks, and its share, go by this name.

    Args:
        name: Whose it is; free again once the key is revoked.
        role: read, submit, operate or admin; each may do what those before may.
        ttl_s: Seconds it is good for; without, until it is revoked.
    """
    told = {"name": name, "role": role}
    body = encode(told if ttl_s is None else told | {"ttl_s": ttl_s})
    response = yield Request("POST", "/keys", body=body)
    return decode(response, NewKey)


def revoke_key(name: str) -> Flow[KeyInfo]:
    """End a key, by its name or its id, at once. Raises NotFound."""
    response = yield Request("DELETE", f"/keys/{segment(name)}")
    return decode(response, KeyInfo)
