"""Who may do what: keys, limits, sessions, secrets, and the audit trail."""

from __future__ import annotations

from collections.abc import Sequence

from corral.manager.access.audit import Audit
from corral.manager.access.keys import Keys
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
        self.audit = Audit(ctx)
        self.sessions = Sessions(ctx, self.keys)
        self.secrets = NamedSecrets(ctx)

    async def load(self) -> None:
        await self.keys.load()
        await self.secrets.load()

    def loops(self) -> Sequence[Loop]:
        return (Loop("access", 1.0, self.step),)

    async def step(self) -> None:
        """Write the audit trail, and now and then when keys were used."""
        await self.audit.flush()
        await self.keys.stamp_uses(self._clock.monotonic())

    async def close(self) -> None:
        await self.audit.flush()
