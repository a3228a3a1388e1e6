"""Events for those who follow them: read from the store, woken by what is written."""

from __future__ import annotations

import asyncio

from corral.core.insight.event import EventPage, EventQuery
from corral.manager.context import ManagerContext
from corral.store.base import EventStore

EVENTS = "@events"
"""The name of the bell; no task is called like that."""
_PACE_S = 0.05
"""After a ring: what is written together is read together."""


class EventHistory:
    """Pages of events, waited for."""

    def __init__(self, ctx: ManagerContext) -> None:
        self._store: EventStore = ctx.store.events
        self._followers = ctx.cluster.followers

    async def page(
        self, where: EventQuery, after: int, limit: int, wait_s: float
    ) -> EventPage:
        """A page once it has something, or as it is after `wait_s`."""
        pace_s = 0.0

        async def look() -> EventPage:
            nonlocal after, pace_s
            await asyncio.sleep(pace_s)
            page = await self._store.event_page(where, after, limit)
            # What was looked through is not looked through again.
            after, pace_s = page.next, _PACE_S
            return page

        poll = self._followers.of(EVENTS)
        return await poll.poll(look, lambda page: bool(page.events), wait_s)
