"""Who may do what: keys of people, nodes and join tokens, and how often each may ask.

A key's text is shown once and never kept. What was done with one is in `audit.py`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from corral.core.access.key import (
    PEOPLE,
    JoinGrant,
    Key,
    Scope,
    check_key_name,
    digest_secret,
    join_proof,
    matches,
    split_key,
    write_key,
)
from corral.core.access.share import OWNER
from corral.errors import (
    Conflict,
    Forbidden,
    InvalidField,
    NotFound,
    RateLimited,
    Unauthenticated,
)
from corral.manager.access.rate_limit import RateLimits, TokenBucket, TokenBuckets
from corral.manager.clock import Clock
from corral.manager.context import ManagerContext
from corral.store.base import AccessStore

log = logging.getLogger(__name__)
# Same path for unknown ids, so that timing tells nothing about which ids exist.
_NOBODY = Key(id="nobody", digest=digest_secret("nobody"), scope=Scope.READ)
_STAMP_S = 30.0
ADMIN_FILE, API_KEY = "admin", "API_KEY"
BOOTSTRAP = (ADMIN_FILE, API_KEY)
"""Names of the keys of a start: that in `admin.key`, that of the setting."""
LONGEST_S = 10 * 366 * 86_400.0
TOKEN_S = 365 * 86_400.0
MOST_USES = 100_000


@dataclass(slots=True, eq=False)
class OpenRequest:
    """A request that is being answered.

    `can_end` says that nothing is left half done when it is broken off: it only reads,
    waits for what it has asked for, or sends its answer.
    """

    key: Key
    task: asyncio.Task[Any] | None
    can_end: bool
    among: set[OpenRequest] = field(repr=False)
    is_ended: bool = False

    def wait(self) -> None:
        """From here on it may be broken off."""
        self.can_end = True

    def over(self) -> None:
        """It was answered."""
        self.among.discard(self)


class OpenRequests:
    """All of them, so that long polls and streams end with the key they came with."""

    def __init__(self) -> None:
        self._all: set[OpenRequest] = set()

    def begin(self, key: Key, *, can_end: bool) -> OpenRequest:
        """Of the task that is running now."""
        made = OpenRequest(key, asyncio.current_task(), can_end, self._all)
        self._all.add(made)
        return made

    def end_void(self, is_good: Callable[[Key], bool]) -> None:
        """Break off those whose key is revoked or over."""
        for request in list(self._all):
            is_due = request.can_end and not request.is_ended
            if is_due and request.task is not None and not is_good(request.key):
                request.is_ended = True
                request.task.cancel()


class Keys:
    """Keys live in memory; every change is written through to the store."""

    def __init__(
        self, ctx: ManagerContext, limits: RateLimits, is_open: bool = False
    ) -> None:
        self._store: AccessStore = ctx.store.access
        self._signals = ctx.signals
        self._clock = ctx.clock
        self._keys: dict[str, Key] = {}
        self._buckets = TokenBuckets(limits.per_s, limits.burst)
        self._failures = TokenBuckets(
            limits.failures_per_min / 60.0, limits.failures_per_min
        )
        self._proofs = TokenBuckets(
            limits.failures_per_min / 60.0, limits.failures_per_min
        )
        self._used: dict[str, datetime] = {}
        self._stamped_at = 0.0
        self._is_open = is_open
        self._secret = hmac.digest(ctx.secret, b"key id", "sha256")

    async def load(self) -> None:
        self._keys = {k.id: k for k in await self._store.keys()}

    # keys --------------------------------------------------------------------
    def known(self) -> list[Key]:
        """All there are or were, each with when it was last used."""
        used = self._used
        return [
            replace(key, last_used_at=used[key.id]) if key.id in used else key
            for key in self._keys.values()
        ]

    async def create(
        self,
        scope: Scope,
        name: str,
        *,
        node_id: str | None = None,
        ttl_s: float | None = None,
        uses: int | None = None,
        granted: JoinGrant | None = None,
    ) -> tuple[Key, str]:
        """A new key and its text; the text is shown once and not kept."""
        now = self._clock.now()
        secret = secrets.token_urlsafe(32)
        key = Key(
            id=secrets.token_hex(6),
            digest=digest_secret(secret),
            scope=scope,
            name=name,
            node_id=node_id,
            created_at=now,
            expires_at=now + timedelta(seconds=ttl_s) if ttl_s else None,
            uses_left=uses,
            granted=granted,
        )
        await self._save(key)
        return key, write_key(key.id, secret)

    async def ensure(self, text: str | None, scope: Scope, name: str) -> None:
        """Of the keys of this name, which says where they come from, the one with this
        very text is good from now on, and no other: who changes or removes the text
        has ended the key.
        """
        key_id, secret = self._parts(text) if text else ("", "")
        for key in list(self._keys.values()):
            is_former = key.name == name and key.scope is scope and key.id != key_id
            if is_former and key.revoked_at is None:
                await self.revoke(key.id)
                log.warning("the former key %s (%s) is no longer good", name, key.id)
        old = self._keys.get(key_id)
        if text is None or (old and matches(old, secret) and old.revoked_at is None):
            return
        if old is not None and old.revoked_at is not None:
            log.warning("the key %s was revoked, and is good again: it is set", name)
        await self._save(
            Key(key_id, digest_secret(secret), scope, name, None, self._clock.now())
        )

    def _parts(self, text: str) -> tuple[str, str]:
        """(id, secret) of a key's text, of our own form or of any other.

        The id of another form must tell nothing that a guess could be checked by: ids
        stand in lists, cookies and the audit trail.
        """
        if parts := split_key(text):
            return parts
        shown = text.encode("utf-8", "surrogatepass")
        return f"boot{hmac.digest(self._secret, shown, 'sha256').hex()[:16]}", text

    async def revoke(self, key_id: str) -> None:
        key = self._keys.get(key_id)
        if key is not None:
            ended = replace(key, revoked_at=self._clock.now())
            await self._save(ended)
            self._signals.key_revoked.tell(ended)

    async def revoke_node(self, node_id: str) -> None:
        """A node that left must not come back with its key."""
        for key in list(self._keys.values()):
            if key.node_id == node_id and key.revoked_at is None:
                await self.revoke(key.id)

    def has_node(self, node_id: str) -> bool:
        """Has this node a key that is still good?"""
        now = self._clock.now()
        return any(
            key.node_id == node_id and key.is_valid(now) for key in self._keys.values()
        )

    def granted_labels(self, node_id: str) -> Mapping[str, str]:
        """The labels that a node has by its join token."""
        now, found = self._clock.now(), self._keys.values()
        for key in found:
            if key.node_id == node_id and key.granted and key.is_valid(now):
                return key.granted.labels
        return {}

    def is_of_node(self, owner: str) -> bool:
        """Was a task with this owner brought by a node, and by nobody else?"""
        key = self._keys.get(owner)
        return key is not None and key.scope is Scope.NODE

    async def _save(self, key: Key) -> None:
        await self._store.save_key(key)
        self._keys[key.id] = key

    async def spend(self, key: Key) -> None:
        """Use up one use of a join token."""
        now = self._clock.now()
        if not await self._store.use_key(key.id, now):
            raise Unauthenticated("this join token is used up or expired")
        if key.uses_left is not None:
            self._keys[key.id] = replace(key, uses_left=key.uses_left - 1)

    def prove(
        self, token_id: str, nonce: str, addresses: Sequence[str], ip: str
    ) -> str:
        """That this manager knows a join token, for whoever is about to send it.

        Of one that is not known the answer is as long, and proves nothing; one that is
        spent or over is proven all the same.

        Raises:
            RateLimited: this address asks too often.
        """
        now = self._clock.monotonic()
        bucket = self._proofs.get(ip, now)
        if not bucket.take(now):
            raise RateLimited(
                "too many questions from this address; wait a minute",
                retry_after_s=60,
                **bucket.figures(),
            )
        key = self._keys.get(token_id)
        is_token = key is not None and key.scope is Scope.JOIN
        digest = key.digest if key and is_token else secrets.token_hex(32)
        return join_proof(digest, token_id, nonce, addresses)

    # checks ------------------------------------------------------------------
    def authenticate(self, text: str | None, ip: str) -> Key:
        """The key behind a bearer text.

        Raises:
            Unauthenticated: unknown, expired or revoked.
            RateLimited: this address failed too often.
        """
        now = self._clock.monotonic()
        if text and split_key(text) is None:
            # Ours cannot be guessed, others may: then also the right one has to wait.
            bucket = self._failures.get(ip, now)
            if bucket.is_spent(now) and not self._is_open:
                raise _guessed_too_often(bucket)
        key, at = self._find(text or ""), self._clock.now()
        if key is not None and key.is_valid(at):
            if key.scope is not Scope.NODE:
                self._used[key.id] = at
            return key
        if self._is_open:
            # Only for those without a key: a node is itself even where all may enter.
            return replace(_NOBODY, id="insecure", scope=Scope.ADMIN)
        if key is not None and key.scope is Scope.NODE:
            raise Unauthenticated(
                "this node was removed from the cluster; join again with a new token",
                is_removed=True,
            )
        bucket = self._failures.get(ip, now)
        if not bucket.take(now):
            raise _guessed_too_often(bucket)
        raise Unauthenticated(
            "no key was given: send 'Authorization: Bearer KEY'"
            if not text
            else "this key is not known, expired or revoked"
        )

    def of_id(self, key_id: str) -> Key | None:
        """The key with this id, which is used now; None when it would not be let in."""
        key, at = self._keys.get(key_id), self._clock.now()
        if key is None or not key.is_valid(at):
            return None
        self._used[key_id] = at
        return key

    def is_void(self, owner: str) -> bool:
        """Had this owner keys, and has none any more?"""
        now = self._clock.now()
        found = [k for k in personal_keys(self) if owner in (k.owner, k.id)]
        return bool(found) and not any(key.is_valid(now) for key in found)

    def is_good(self, key: Key) -> bool:
        """Would this key be let in now?"""
        known = self._keys.get(key.id)
        is_known = known is not None and known.is_valid(self._clock.now())
        return self._is_open or is_known

    def _find(self, text: str) -> Key | None:
        key_id, secret = self._parts(text)
        key = self._keys.get(key_id, _NOBODY)
        return key if matches(key, secret) and key is not _NOBODY else None

    def throttle(self, key: Key) -> TokenBucket:
        """Count one request of a key; nodes are not limited."""
        now = self._clock.monotonic()
        bucket = self._buckets.get(key.id, now)
        if key.scope is not Scope.NODE and not bucket.take(now):
            raise RateLimited(
                "this key sends too many requests",
                retry_after_s=max(1, round(1 / bucket.rate_per_s)),
                **bucket.figures(),
            )
        return bucket

    @staticmethod
    def require(key: Key, scope: Scope, node_id: str | None = None) -> None:
        if not key.allows(scope):
            raise Forbidden(f"this key may not do that; it needs scope '{scope}'")
        if node_id is not None and key.node_id != node_id:
            raise Forbidden("this credential belongs to another node")

    async def stamp_uses(self, now: float) -> None:
        """Write when keys were last used, now and then (monotonic `now`)."""
        if not self._used or now - self._stamped_at < _STAMP_S:
            return
        self._stamped_at = now
        used = {id_: at for id_, at in self._used.items() if id_ in self._keys}
        await self._store.stamp_keys(used)
        for key_id, at in used.items():
            self._keys[key_id] = replace(self._keys[key_id], last_used_at=at)
            if self._used.get(key_id) == at:
                del self._used[key_id]


def _guessed_too_often(bucket: TokenBucket) -> RateLimited:
    return RateLimited(
        "too many failed keys from this address; wait a minute",
        retry_after_s=60,
        **bucket.figures(),
    )


def personal_keys(keys: Keys) -> list[Key]:
    """Every key a person could use, by name, with when it was last used."""
    found = [key for key in keys.known() if key.scope in PEOPLE]
    return sorted(found, key=lambda key: (key.name, key.id))


async def create_key(
    keys: Keys, clock: Clock, name: str, role: str, ttl_s: float | None
) -> tuple[Key, str]:
    """A new key and its text, which is not kept.

    Raises:
        InvalidField: a name, role or time that means nothing.
        Conflict: another key goes by that name.
    """
    check_key_name(name)
    if name in BOOTSTRAP:
        raise Conflict(
            f"{name} is the name of a key that Corral makes from its settings: choose "
            "another",
            name=name,
        )
    if role not in PEOPLE:
        words = ", ".join(sorted(PEOPLE))
        raise InvalidField(f"role must be one of {words}", field="role")
    if ttl_s is not None and not 0 < ttl_s <= LONGEST_S:
        raise InvalidField("ttl_s must be over 0, at most ten years", field="ttl_s")
    now = clock.now()
    for key in keys.known():
        if key.id == name or (key.name == name and key.is_valid(now)):
            raise Conflict(
                f"there is a key named {name} already; 'corral key revoke {name}' "
                "ends it, then the name is free",
                name=name,
            )
    return await keys.create(Scope(role), name, ttl_s=ttl_s)


async def revoke_key(keys: Keys, clock: Clock, name: str, own: Key) -> Key:
    """End a key, by its name or its id; whoever has it is refused from now on.

    Raises:
        NotFound: no valid key of a person goes by that name.
        Conflict: it is the key that asks, or several go by that name.
    """
    now = clock.now()
    valid = [key for key in personal_keys(keys) if key.is_valid(now)]
    found = [k for k in valid if k.id == name] or [k for k in valid if k.name == name]
    if not found:
        raise NotFound(f"no key {name[:200]!r} that is still good", key=name[:200])
    if len(found) > 1:
        ids = [key.id for key in found]
        raise Conflict(
            f"{len(found)} keys are named {name[:200]}: say which by its id, "
            f"{', '.join(ids)}",
            keys=ids,
        )
    (key,) = found
    if key.id == own.id:
        raise Conflict(
            "this is the key you are using: revoke it with another", key=key.id
        )
    await keys.revoke(key.id)
    return key


def join_tokens(keys: Keys) -> list[Key]:
    """Every token that lets machines join, the newest first."""
    found = [key for key in keys.known() if key.scope is Scope.JOIN]
    return sorted(found, key=lambda key: (key.created_at, key.id), reverse=True)


async def create_join_token(
    keys: Keys, ttl_s: float, uses: int, granted: JoinGrant | None
) -> tuple[Key, str]:
    """A new token and its text, which is not kept.

    Raises:
        InvalidField: a number, label, taint or type that means nothing.
    """
    if not 0 < ttl_s <= TOKEN_S:
        raise InvalidField("ttl_s must be over 0 and at most a year", field="ttl_s")
    if not 1 <= uses <= MOST_USES:
        raise InvalidField(f"uses must be 1 to {MOST_USES}", field="uses")
    if granted is not None:
        granted.check()
    return await keys.create(
        Scope.JOIN, "join token", ttl_s=ttl_s, uses=uses, granted=granted
    )


async def revoke_join_token(keys: Keys, clock: Clock, token_id: str) -> Key:
    """End a token; nodes that joined with it stay. Raises NotFound."""
    now = clock.now()
    valid = [key for key in join_tokens(keys) if key.is_valid(now)]
    if token_id not in {key.id for key in valid}:
        raise NotFound(
            f"no join token {token_id[:64]!r} that is still good; 'corral token list' "
            "shows them",
            token_id=token_id[:64],
        )
    await keys.revoke(token_id)
    return next(key for key in join_tokens(keys) if key.id == token_id)


def share_name(keys: Keys, name: str) -> str:
    """The name of a share, where `owner=ID` of a key means whoever that key is of."""
    key, _, value = name.partition("=")
    if key != OWNER:
        return name
    owners = {known.id: known.owner for known in personal_keys(keys)}
    return f"{OWNER}={owners.get(value, value)}"
