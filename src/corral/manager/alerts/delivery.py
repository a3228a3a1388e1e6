"""Tells webhooks of alerts, in order and at least once, across restarts.

How far each receiver has been told is a cursor over the events; one that fails or is
away waits and is told again, and holds up nobody else.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from corral.core.insight.event import ALERT, Event, EventQuery
from corral.manager.alerts.alerts import RESOLVED, WORSENED
from corral.manager.context import ManagerContext
from corral.manager.outbound.outbox import Outbox
from corral.manager.outbound.webhook import (
    NotifyConfig,
    WebhookFacts,
    WebhookSender,
    failed,
    root_of,
)
from corral.store.base import EventStore

log = logging.getLogger(__name__)
_TOLD = EventQuery(event_types=(ALERT, WORSENED, RESOLVED))
_PAGE = 100
_IDLE_S = 600.0
"""So often the cursors move past what is no alert, and a restart has little to read."""


@dataclass(slots=True)
class _AlertReceiver:
    """`at` is the last event it was told of, `events` are next."""

    url: str
    at: int = 0
    events: deque[Event] = field(default_factory=deque)

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
        self._receivers = [_AlertReceiver(url) for url in dict.fromkeys(urls)]
        most = max(1, len(self._receivers))
        self._sender = WebhookSender(config, most)
        # One call to each: that keeps the order.
        self.outbox = Outbox(
            ctx.clock, config.backoff, self._send, window=1, most_calls=most
        )

    def ring(self) -> None:
        """There may be something to tell; who is tried again later hears it then."""
        for receiver in self._receivers:
            if not self.outbox.waits(receiver.url):
                self.outbox.put(receiver.url, receiver.url, receiver)

    async def open(self) -> None:
        """Go on where each receiver was; a new one is told of what comes from now."""
        for receiver in self._receivers:
            at = await self._store.cursor(receiver.cursor)
            if at is None:
                at = (await self._store.event_page(EventQuery(), 0, 1)).next
                await self._store.save_cursor(receiver.cursor, at)
            receiver.at = at
        self.ring()

    async def close(self) -> None:
        await self.outbox.close()
        await self._sender.close()

    async def step(self) -> None:
        """Rest until there is something to tell, and begin to tell it."""
        if not await self.outbox.rest(_IDLE_S):
            self.ring()
        self.outbox.begin()

    # one event -----------------------------------------------------------------
    async def _send(
        self, receiver: _AlertReceiver, number: int, delay_s: float
    ) -> _AlertReceiver | None:
        if not receiver.events:
            page = await self._store.event_page(_TOLD, receiver.at, _PAGE)
            receiver.events.extend(page.events)
            if not page.events:
                await self._advance(receiver, page.next)
                return None
        event, now = receiver.events[0], self._clock.now()
        trouble = await self._call(receiver.url, event, number)
        if trouble is not None:
            due = now + timedelta(seconds=delay_s)
            if not self._sender.is_over(trouble, event.at or now, due):
                if number == 1:
                    root = root_of(receiver.url)
                    log.warning("%s is not told of alerts: %s", root, trouble)
                return receiver
            await self._give_up(receiver.url, event, number, trouble)
        receiver.events.popleft()
        await self._advance(receiver, event.seq)
        # Until there is nothing left to tell, each from its first try on.
        self.outbox.put(receiver.url, receiver.url, receiver)
        return None

    async def _call(self, url: str, event: Event, number: int) -> str | None:
        body = told(event, self._clock.now())
        facts = WebhookFacts(body["event"], _delivery(event), number)
        return await self._sender.post(url, msgspec.json.encode(body), facts)

    async def _advance(self, receiver: _AlertReceiver, seq: int) -> None:
        if seq > receiver.at:
            receiver.at = seq
            await self._store.save_cursor(receiver.cursor, seq)

    async def _give_up(self, url: str, event: Event, tries: int, trouble: str) -> None:
        root = root_of(url)
        title = f"{root} could not be told of an alert: {event.title}"
        log.warning("%s: %s", title, trouble)
        await self._record([failed(title, root, tries, trouble)])


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
