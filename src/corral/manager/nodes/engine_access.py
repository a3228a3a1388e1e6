"""A node's way to the engine: its user there, its tunnels, and the end of both.

Whoever's key is revoked has neither any more: its tunnels are cut at once, and its user
is deleted as soon as the engine answers.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from corral.core.access.key import Key, Scope
from corral.errors import EngineUnavailable, Forbidden, Unauthenticated
from corral.manager.access.derived_keys import node_password
from corral.manager.access.keys import Keys
from corral.manager.context import ManagerContext
from corral.manager.feature import Loop

log = logging.getLogger(__name__)
_PERIOD_S = 0.5


@dataclass(frozen=True, slots=True)
class EngineGrant:
    """Where a node gets its orders; without a user it needs no password either."""

    url: str
    user: str | None
    password: str | None = field(repr=False)
    database: int


class NodeTunnel(Protocol):
    """A connection to the engine that is one node's, and stays so."""

    async def read(self) -> bytes:
        """What the engine says; nothing when it has ended. Raises OSError."""

    async def write(self, data: bytes) -> None:
        """Say what the node says; raises Forbidden or OSError."""

    def close(self) -> None:
        """End it at once."""


class NodeEngine:
    def __init__(self, ctx: ManagerContext, keys: Keys) -> None:
        self._engine = ctx.engine
        self._secret = ctx.secret
        self._keys = keys
        self._links: defaultdict[str, set[NodeTunnel]] = defaultdict(set)
        self._revoked: set[str] = set()
        ctx.signals.key_revoked.listen(self._cut)

    async def grant(self, node_id: str) -> EngineGrant:
        """Let a node in.

        Raises:
            EngineUnavailable: the engine is away.
            Unauthenticated: the node was removed meanwhile.
        """
        password = node_password(self._secret, node_id)
        user = await self._engine.grant(node_id, password)
        if not self._keys.has_node(node_id):
            # Its user may have been deleted before this made it again.
            self._revoked.add(node_id)
            raise Unauthenticated("this node was removed: it needs a new join token")
        where = self._engine.address
        return EngineGrant(
            where.public_url, user, password if user else None, where.database
        )

    async def open(self, key: Key) -> NodeTunnel:
        """A connection that is logged in as the node whose key this is.

        Raises:
            Forbidden: no node's key, or an engine that would let anybody in.
            EngineUnavailable: the engine is away.
        """
        if key.node_id is None or key.scope is not Scope.NODE:
            raise Forbidden("only a node is carried to the engine")
        password = node_password(self._secret, key.node_id)
        return await self._engine.open(key.node_id, password)

    @contextmanager
    def held(self, key: Key, link: NodeTunnel) -> Iterator[None]:
        """As long as bytes are carried: it is closed when the key is revoked."""
        links = self._links[key.id]
        links.add(link)
        try:
            # Only now is a revocation heard; one from before would be missed.
            if not self._keys.is_good(key):
                raise Unauthenticated("this key is not known, expired or revoked")
            yield
        finally:
            link.close()
            links.discard(link)
            if not links:
                self._links.pop(key.id, None)

    def loop(self) -> Loop:
        return Loop("engine access", _PERIOD_S, self.step)

    async def step(self) -> None:
        """Delete the users of nodes that are no more."""
        for node_id in list(self._revoked):
            try:
                await self._engine.revoke(node_id)
            except EngineUnavailable:
                # When it answers again it may have its users still.
                return
            self._revoked.discard(node_id)
            log.info("node %s has no way to the engine any more", node_id)

    def _cut(self, key: Key) -> None:
        if key.scope is not Scope.NODE or key.node_id is None:
            return
        for link in list(self._links.get(key.id, ())):
            link.close()
        self._revoked.add(key.node_id)
