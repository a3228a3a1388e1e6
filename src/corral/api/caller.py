"""Who asks: the key of a request, what it may do, and the manager to ask."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request

from corral.api.middleware import OPEN
from corral.core.access.key import Key, Scope
from corral.errors import AuthError, Forbidden, RateLimited
from corral.manager.access.keys import OpenRequest
from corral.manager.access.rate_limit import TokenBucket
from corral.manager.app import Manager

T = TypeVar("T")
PAGE_HEADER = "x-corral-page"
_OURS = ("same-origin", "none")
_READS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and the manager to ask."""

    manager: Manager
    key: Key
    ip: str
    request_id: str
    request: OpenRequest | None = None

    def wait(self) -> None:
        """What was to be done is done: from here on this call only waits, and may be
        broken off when its key is revoked.
        """
        if self.request is not None:
            self.request.wait()

    @property
    def only_of(self) -> str | None:
        """Whose tasks it may stop or start again; None: everybody's."""
        return None if self.key.allows(Scope.OPERATE) else self.key.owner

    def note(self, action: str, target: str, **data: Any) -> None:
        """Leave an audit row for a change this caller made."""
        self.manager.access.audit.note(
            self.key.id,
            action,
            target,
            is_allowed=True,
            ip=self.ip,
            request_id=self.request_id,
            data=data,
        )


def manager_of(request: Request) -> Manager:
    manager: Manager = request.app.state.manager
    return manager


def bearer(header: str | None) -> str | None:
    scheme, _, text = (header or "").partition(" ")
    return text.strip() if scheme.lower() == "bearer" and text.strip() else None


def key_of(manager: Manager, request: Request, ip: str) -> Key:
    """The key in the head of a request, or the one that its session stands for.

    A cookie counts only beside a header that no other site, and no link, form or
    image of our own, can make a browser send.

    Raises:
        AuthError: there is no such key, or another site asks.
    """
    text = bearer(request.headers.get("authorization"))
    if text is None and PAGE_HEADER in request.headers:
        cookie = request.cookies.get(manager.access.sessions.cookie)
        if cookie is not None and not manager.config.is_open:
            if request.headers.get("sec-fetch-site", "same-origin") not in _OURS:
                raise Forbidden("a page of another site may not use this session")
            return manager.access.sessions.read(cookie)
    return manager.access.keys.authenticate(text, ip)


def caller(scope: Scope, *others: Scope) -> Callable[[Request], Awaitable[Caller]]:
    """A dependency: the caller, once its key allows `scope` or one of the others.

    For scope `node` a route's `node_id` must be the credential's own.
    """

    async def check(request: Request) -> Caller:
        manager = manager_of(request)
        ip = request.client.host if request.client else ""
        scope_of = request.scope
        request_id = scope_of.get("corral_request_id", "")
        key: Key | None = None
        try:
            key = key_of(manager, request, ip)
            bucket = manager.access.keys.throttle(key)
            request.scope.get("corral_headers", []).extend(rate_headers(bucket))
            node_id = request.path_params.get("node_id")
            is_node = scope is Scope.NODE
            if not any(key.allows(other) for other in others):
                manager.access.keys.require(key, scope, node_id if is_node else None)
        except AuthError as e:
            what = f"{request.method} {request.scope['path']}"
            note_denial(manager, key, what, e, ip, request_id)
            raise
        opened = scope_of.get(OPEN)
        if opened is None:
            reads = request.method in _READS
            opened = manager.access.requests.begin(key, can_end=reads)
            scope_of[OPEN] = opened
        return Caller(manager, key, ip, request_id, opened)

    return check


def note_denial(
    manager: Manager,
    key: Key | None,
    what: str,
    error: AuthError,
    ip: str,
    request_id: str = "",
) -> None:
    """Leave an audit row for a refusal.

    Strangers who fail so often that they are told to wait leave no more rows: the
    trail must not be theirs to fill.
    """
    if key is None and isinstance(error, RateLimited):
        return
    manager.access.audit.note(
        key.id if key else "",
        what[:200],
        error.code,
        is_allowed=False,
        ip=ip,
        request_id=request_id,
    )


def rate_headers(bucket: TokenBucket) -> list[tuple[bytes, bytes]]:
    return [
        (b"x-ratelimit-limit", b"%d" % bucket.burst),
        (b"x-ratelimit-remaining", b"%d" % bucket.left),
        (b"x-ratelimit-reset", b"%d" % math.ceil(bucket.reset_s)),
    ]
