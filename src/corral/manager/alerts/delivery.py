"""Tells webhooks of alerts, in order and at least once, across restarts.

How far each receiver has been told is a cursor over the events; one that fails or is
away waits and is told again, and holds up nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from corral.core.insight.event import ALERT, EventQuery
from corral.manager.alerts.alerts import RESOLVED, WORSENED
from corral.manager.context import ManagerContext
from corral.manager.outbound.webhook import (
    GONE,
    NotifyConfig,
    WebhookFacts,
    WebhookSender,
    root_of,
)
from corral.store.base import Event, EventStore

log = logging.getLogger(__name__)
_TOLD = EventQuery(event_types=(ALERT, WORSENED, RESOLVED))
_PAGE = 100
_IDLE_S = 600.0
"""So often the cursors move past what is no alert, and a restart has little to read."""


@dataclass(slots=True)
class _AlertReceiver:
    """`at` is the last event it was told of, `due` when it is tried again."""

    url: str
    at: int = 0
    tries: int = 0
    due: datetime | None = None

    @property
    def cursor(self) -> str:
        # A URL may hold a secret.
        return f"alerts:{hashlib.sha256(self.url.encode()).hexdigest()[:16]}"


class AlertNotices:
    """`open` once, then `step` again and again; `close` in the end."""

    def __init__(
        self, ctx: ManagerContext, config: NotifyConfig, urls: Sequence[str]
    ) -> None:
        self._store: EventStore = ctx.store.events
        self._clock = ctx.clock
        self._record = ctx.record
        self._config = config
        self._receivers = [_AlertReceiver(url) for url in dict.fromkeys(urls)]
        self._courier = WebhookSender(config, most_calls=max(1, len(self._receivers)))
        self._news = asyncio.Event()
        self._looking = asyncio.Lock()

    def ring(self) -> None:
        self._news.set()

    async def open(self) -> None:
        """Go on where each receiver was; a new one is told of what comes from now."""
        for receiver in self._receivers:
            at = await self._store.cursor(receiver.cursor)
            if at is None:
                at = (await self._store.event_page(EventQuery(), 0, 1)).next
                await self._store.save_cursor(receiver.cursor, at)
            receiver.at = at
        self._news.set()

    async def close(self) -> None:
        await self._courier.close()

    async def step(self) -> None:
        """Rest until there is something to tell, and tell it."""
        with contextlib.suppress(TimeoutError):
            # Not wait_for: that one may swallow the cancellation of a stop.
            async with asyncio.timeout(self._rest_s()):
                await self._news.wait()
        await self.look()

    def _rest_s(self) -> float:
        now = self._clock.now()
        waits = [(r.due - now).total_seconds() for r in self._receivers if r.due]
        return max(0.0, min([*waits, _IDLE_S]))

    async def look(self) -> None:
        """Tell every receiver that is due all it does not know yet."""
        async with self._looking:
            self._news.clear()
            now = self._clock.now()
            due = [r for r in self._receivers if r.due is None or r.due <= now]
            await asyncio.gather(*(self._serve(receiver) for receiver in due))

    async def _serve(self, receiver: _AlertReceiver) -> None:
        while True:
            page = await self._store.event_page(_TOLD, receiver.at, _PAGE)
            for event in page.events:
                if not await self._tell(receiver, event):
                    return
                await self._advance(receiver, event.seq)
            await self._advance(receiver, page.next)
            if len(page.events) < _PAGE:
                return

    async def _advance(self, receiver: _AlertReceiver, seq: int) -> None:
        if seq > receiver.at:
            receiver.at, receiver.tries, receiver.due = seq, 0, None
            await self._store.save_cursor(receiver.cursor, seq)

    async def _tell(self, receiver: _AlertReceiver, event: Event) -> bool:
        """Is this receiver done with this event?"""
        now = self._clock.now()
        body = told(event, now)
        facts = WebhookFacts(body["event"], _delivery(event), receiver.tries + 1)
        sent = msgspec.json.encode(body)
        trouble = await self._courier.post(receiver.url, sent, facts)
        if trouble is None:
            return True
        receiver.tries += 1
        delay_s = self._config.backoff.delay_s(receiver.tries, random.random())
        receiver.due = now + timedelta(seconds=delay_s)
        age = receiver.due - (event.at or now)
        if trouble == GONE or age > timedelta(seconds=self._config.give_up_s):
            await self._give_up(receiver, event, trouble)
            return True
        if receiver.tries == 1:
            log.warning("%s is not told of alerts: %s", root_of(receiver.url), trouble)
        return False

    async def _give_up(
        self, receiver: _AlertReceiver, event: Event, trouble: str
    ) -> None:
        root = root_of(receiver.url)
        title = f"{root} could not be told of an alert: {event.title}"
        log.warning("%s: %s", title, trouble)
        data = {"receiver": root, "tries": receiver.tries, "reason": trouble}
        now = self._clock.now()
        failed = Event("webhook_failed", title, "warning", data=data, at=now)
        await self._record([failed])


def _delivery(event: Event) -> str:
    """The same for all that says the same: a resolution may have been stored twice."""
    if event.event_type == RESOLVED:
        return f"alert:{event.data.get('alert')}:resolved"
    return f"alert:{event.seq}"


def told(event: Event, now: datetime) -> dict[str, Any]:
    """What a receiver gets: the fields of GET /alerts."""
    data, is_over = event.data, event.event_type == RESOLVED
    is_first = event.event_type == ALERT
    alert = {
        "id": data.get("alert", event.seq),
        "rule": data.get("rule"),
        "subject": data.get("subject"),
        "severity": data.get("severity", event.severity),
        "title": data.get("title", event.title),
        "value": data.get("value"),
        "limit": data.get("limit"),
        "node_id": event.source_node_id,
        "raised_at": event.at if is_first else data.get("raised_at"),
        "resolved_at": event.at if is_over else None,
    }
    name = "alert_resolved" if is_over else "alert_raised"
    return {"event": name, "sent_at": now, "alert": alert}
