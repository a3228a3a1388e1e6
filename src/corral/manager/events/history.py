"""Events for those who follow them: read from the store, woken by what is written."""

from __future__ import annotations

import asyncio
import contextlib

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
        loop = asyncio.get_running_loop()
        ends = loop.time() + wait_s
        with self._followers.watch(EVENTS) as bell:
            while True:
                # Before the look: what comes after it rings again.
                bell.clear()
                page = await self._store.event_page(where, after, limit)
                left_s = ends - loop.time()
                if page.events or left_s <= 0 or self._followers.is_closing:
                    return page
                # What was looked through is not looked through again.
                after = page.next
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(bell.wait(), left_s)
                    await asyncio.sleep(_PACE_S)
