"""The JSON shapes of events as they happen."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct


class LiveEventOut(Struct):
    """`seq` grows with every event; what `data` has is told by `event`."""

    event: str
    timestamp: datetime
    seq: int
    data: dict[str, Any]


class LivePageOut(Struct):
    """`next` is the `after` of the page that follows."""

    events: list[LiveEventOut]
    next: int


class TicketOut(Struct):
    """Good once, for `?ticket=` of /ws or /events/stream."""

    ticket: str
    expires_in_s: float
