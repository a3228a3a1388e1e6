"""Who may do what: keys, limits, sessions, secrets, and the audit trail."""

from __future__ import annotations

from collections.abc import Sequence

from corral.core.access.key import JoinGrant, Key, Scope
from corral.manager.access.audit import CHECK_S, Audit
from corral.manager.access.keys import (
    ADMIN_FILE,
    API_KEY,
    Keys,
    OpenRequests,
    create_join_token,
    create_key,
    join_tokens,
    personal_keys,
    revoke_join_token,
    revoke_key,
    share_name,
)
from corral.manager.access.rate_limit import RateLimits
from corral.manager.access.secrets import NamedSecrets
from corral.manager.access.sessions import Sessions
from corral.manager.context import ManagerContext
from corral.manager.feature import Feature, Loop


class Access(Feature):
    def __init__(
        self, ctx: ManagerContext, limits: RateLimits, is_open: bool = False
    ) -> None:
        self._clock = ctx.clock
        self.keys = Keys(ctx, limits, is_open)
        self.requests = OpenRequests()
        self.audit = Audit(ctx)
        self.sessions = Sessions(ctx, self.keys)
        self.secrets = NamedSecrets(ctx, self.keys)

    async def load(self) -> None:
        await self.keys.load()
        await self.sessions.load()
        await self.secrets.load()

    async def bootstrap(self, admin_key: str, api_key: str | None) -> None:
        """Let in whoever has the keys of this start, and none of former ones."""
        await self.keys.ensure(admin_key, Scope.ADMIN, ADMIN_FILE)
        await self.keys.ensure(api_key, Scope.ADMIN, API_KEY)

    # verbs ---------------------------------------------------------------------
    def personal_keys(self) -> list[Key]:
        """Every key a person could use, by name."""
        return personal_keys(self.keys)

    async def create_key(
        self, name: str, role: str, ttl_s: float | None
    ) -> tuple[Key, str]:
        """A new key of a person and its text; raises InvalidField or Conflict."""
        return await create_key(self.keys, self._clock, name, role, ttl_s)

    async def revoke_key(self, name: str, own: Key) -> Key:
        """End a key, by its name or id, as it is then; raises NotFound or Conflict."""
        key = await revoke_key(self.keys, self._clock, name, own)
        return next(known for known in self.personal_keys() if known.id == key.id)

    def join_tokens(self) -> list[Key]:
        """Every token that lets machines join, the newest first."""
        return join_tokens(self.keys)

    async def create_join_token(
        self, ttl_s: float, uses: int, granted: JoinGrant | None = None
    ) -> tuple[Key, str]:
        """A new token and its text; raises InvalidField."""
        return await create_join_token(self.keys, ttl_s, uses, granted)

    async def revoke_join_token(self, token_id: str) -> Key:
        """End a token; nodes that joined with it stay. Raises NotFound."""
        return await revoke_join_token(self.keys, self._clock, token_id)

    def key_ids(self, name: str) -> tuple[str, ...]:
        """The ids of all keys there are or were with this name or id, or its own."""
        found = [k.id for k in self.keys.known() if name in (k.id, k.name, k.node_id)]
        return tuple(found) or (name,)

    def key_names(self) -> dict[str, str]:
        """How keys are called, by id."""
        return {key.id: key.name for key in self.keys.known()}

    def share_name(self, name: str) -> str:
        """The name of a share, where `owner=ID` of a key means whose that key is."""
        return share_name(self.keys, name)

    def loops(self) -> Sequence[Loop]:
        return (
            Loop("access", 1.0, self.step),
            Loop("audit", CHECK_S, self.audit.step),
        )

    async def step(self) -> None:
        """End what goes on with a void key, write the audit trail, and now and then
        when keys were used.
        """
        # First: a store that is away must not keep a stream open.
        self.requests.end_void(self.keys.is_good)
        await self.audit.flush()
        await self.keys.stamp_uses(self._clock.monotonic())

    async def close(self) -> None:
        await self.audit.flush()
