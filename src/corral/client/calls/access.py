"""The calls about keys, join tokens, secrets of jobs, and a link to the dashboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from corral.client.http.endpoint import Flow, Request, get, segment
from corral.client.http.errors import decode
from corral.client.http.payload import encode, post
from corral.wire.access import (
    AuditCheck,
    AuditPage,
    DashboardLink,
    JoinToken,
    JoinTokenInfo,
    JoinTokenList,
    KeyInfo,
    KeyList,
    NewKey,
    SecretInfo,
    SecretList,
)


def keys() -> Flow[list[KeyInfo]]:
    """Every key of a person, by name."""
    response = yield get("/keys")
    return decode(response, KeyList).keys


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


# The calls about the audit trail: who asked for what.


def audit(
    *,
    actor: str | None = None,
    action: str | None = None,
    target: str | None = None,
    allowed: bool | None = None,
    since: str | None = None,
    until: str | None = None,
    before: int | None = None,
    limit: int = 100,
) -> Flow[AuditPage]:
    """A page of the audit trail, newest first.

    Args:
        actor: The name or id of a key or node.
        action: How the action begins, as `key.` or `node.join`.
        target: How what it was about begins.
        allowed: Only what was let (True) or refused (False).
        since: From then on: an ISO 8601 time, or `-3600` for an hour ago.
        until: Before then.
        before: The `cursor` of the page before.
        limit: At most so many rows.
    """
    response = yield get(
        "/audit",
        actor=actor,
        action=action,
        target=target,
        allowed=None if allowed is None else str(allowed).lower(),
        since=since,
        until=until,
        before=before,
        limit=limit,
    )
    return decode(response, AuditPage)


def check_audit() -> Flow[AuditCheck]:
    """Have the manager look through the chain of the audit trail."""
    response = yield get("/audit/check")
    return decode(response, AuditCheck)


# The calls about join tokens: what lets a machine become a node.


def join_token(
    *,
    ttl_s: float | None = None,
    uses: int | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
    job_types: Sequence[str] = (),
) -> Flow[JoinToken]:
    """A token with which `corral join` brings another machine in.

    Args:
        ttl_s: Seconds it is good for; a day unless told.
        uses: How many machines may use it; one unless told.
        labels: What these nodes are labelled; they can claim no other labels then.
        taints: What keeps tasks away from them, whatever they say.
        job_types: What workers of their own may serve; anything when empty.
    """
    response = yield post(
        "/join-tokens",
        ttl_s=ttl_s,
        uses=uses,
        labels=dict(labels) if labels else None,
        taints=list(taints) or None,
        job_types=list(job_types) or None,
    )
    return decode(response, JoinToken)


def join_tokens() -> Flow[list[JoinTokenInfo]]:
    """Every join token without its text, the newest first."""
    response = yield get("/join-tokens")
    return decode(response, JoinTokenList).tokens


def revoke_join_token(token_id: str) -> Flow[JoinTokenInfo]:
    """End a join token; nodes that joined with it stay. Raises NotFound."""
    response = yield Request("DELETE", f"/join-tokens/{segment(token_id)}")
    return decode(response, JoinTokenInfo)


# The calls about named secrets: set, list, remove. No call gives a value back.


def secrets() -> Flow[list[SecretInfo]]:
    """Every secret, by name."""
    response = yield get("/secrets")
    return decode(response, SecretList).secrets


def set_secret(
    name: str,
    value: str,
    *,
    job_types: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    node_labels: Mapping[str, str] | None = None,
) -> Flow[SecretInfo]:
    """Keep a value under a name, encrypted; attempts that start later get it.

    What is left out stays as it was, what is empty lets all have it.

    Args:
        name: As variables are named: letters, digits and _.
        value: What a job finds in its environment.
        job_types: Whose tasks may have it.
        keys: Names of the keys they must be submitted with.
        node_labels: What a node must have, by its token or an operator's word.
    """
    told = {"job_types": job_types, "keys": keys, "node_labels": node_labels}
    said = {field: some for field, some in told.items() if some is not None}
    body = encode({"name": name, "value": value, **said})
    response = yield Request("POST", "/secrets", body=body, is_repeatable=True)
    return decode(response, SecretInfo)


def remove_secret(name: str) -> Flow[None]:
    """Forget a secret; jobs that have it keep it. Raises NotFound."""
    yield Request("DELETE", f"/secrets/{segment(name)}")


# The calls about the dashboard: a link that signs in once, and what was used.


def dashboard_link() -> Flow[DashboardLink]:
    """A link to the dashboard for whoever has this client's key."""
    response = yield Request("POST", "/ui/links")
    return decode(response, DashboardLink)
