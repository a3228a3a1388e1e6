"""The call that hears of events as they happen."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from corral.client.exchange import Items, Stream, get
from corral.client.fault import decode
from corral.client.task import POLL_S
from corral.client.value import Value

RESET = "reset"


class LiveEvent(Value, frozen=True, kw_only=True):
    """Something that happened; docs/events.md says what `data` has for each `event`.

    After an event `reset` some may be missing: what was learned from events is to be
    loaded anew.
    """

    event: str
    timestamp: datetime
    seq: int
    data: Any = None


class _Page(msgspec.Struct):
    events: list[LiveEvent]
    next: int


def live_events(
    *,
    after: int | None = None,
    event_type: str | None = None,
    task_id: str | None = None,
    task_type: str | None = None,
    node_id: str | None = None,
    worker_id: str | None = None,
    label: str | None = None,
    detail: str | None = None,
) -> Stream[LiveEvent]:
    """Everything that happens from now on, without end; or from after a `seq`.

    Each comes once and in order, through lost connections. `event_type` may name
    several, with commas; a `label` reads `key:value`. With `detail="summary"` changes
    of tasks come together, as `tasks_changed`.
    """
    wait_s = 0.0
    while True:
        response = yield get(
            "/events/live",
            wait_s=wait_s,
            after=after,
            type=event_type,
            task_id=task_id,
            task_type=task_type,
            node_id=node_id,
            worker_id=worker_id,
            label=label,
            detail=detail,
            wait=wait_s or None,
        )
        page = decode(response, _Page)
        if page.events:
            yield Items(page.events)
        after, wait_s = page.next, POLL_S
