"""Events and the audit log in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from corral.store.audit import Verifier, link
from corral.store.base import AuditRow
from corral.store.event import ALERT, OF_TASKS, Event, EventFilter, EventPage
from corral.store.memory_shelf import MemoryShelf
from corral.store.record import audit_of, audit_row, event_of, event_row
from corral.store.text import clean


class MemoryHistory(MemoryShelf):
    async def add_events(self, events: Sequence[Event]) -> None:
        for event in events:
            # Through the row and back, as a database would give it.
            at = event.at or datetime.now(UTC)
            self._append(event_of(event_row(replace(event, at=at)) | {"seq": 0}))

    async def events(self, after_seq: int = 0, limit: int = 100) -> Sequence[Event]:
        found = [event for event in self._events if event.seq > after_seq]
        return found[:limit] if after_seq > 0 else found[-limit:]

    async def event_page(
        self, where: EventFilter, after_seq: int = 0, limit: int = 100
    ) -> EventPage:
        end = max(after_seq, self._events[-1].seq if self._events else 0)
        if where.task_id is not None and where.task_id not in self._tasks:
            return EventPage((), end)
        found = [e for e in self._events if e.seq > after_seq and _is_chosen(e, where)]
        events = tuple(found[:limit] if after_seq > 0 else found[-limit:])
        is_cut = after_seq > 0 and len(events) == limit
        return EventPage(events, events[-1].seq if is_cut else end)

    async def alerts(self, where: EventFilter, limit: int = 1000) -> Sequence[Event]:
        found = (e for e in self._events[::-1] if e.event_type == ALERT)
        return [event for event in found if _is_chosen(event, where)][:limit]

    async def acknowledge_alert(
        self, seq: int, by: str, at: datetime, note: str = ""
    ) -> Event | None:
        def seen(found: Event) -> Event:
            if found.acknowledged_at is not None:
                return found
            data = {**found.data, "note": note} if note else found.data
            by_whom = clean(by)
            return replace(
                found, acknowledged_at=at, acknowledged_by=by_whom, data=data
            )

        return self._change_alert(seq, seen)

    async def worsen_alert(
        self, seq: int, severity: str, title: str, data: Mapping[str, Any]
    ) -> None:
        def worse(found: Event) -> Event:
            more = {**found.data, **data}
            return replace(found, severity=severity, title=clean(title), data=more)

        self._change_alert(seq, worse)

    async def resolve_alerts(self, seqs: Sequence[int], at: datetime) -> None:
        for seq in seqs:
            self._change_alert(seq, lambda found: replace(found, resolved_at=at))

    def _change_alert(self, seq: int, change: Callable[[Event], Event]) -> Event | None:
        """The alert after `change`, which a resolved one does not get."""
        for place, event in enumerate(self._events):
            if event.seq == seq and event.event_type == ALERT:
                if event.resolved_at is None:
                    # Through the row and back, as a database would give it.
                    changed = change(event)
                    data = event_of(event_row(changed) | {"seq": seq}).data
                    self._events[place] = replace(changed, data=data)
                return self._events[place]
        return None

    async def cursor(self, name: str) -> int | None:
        return self._cursors.get(name)

    async def save_cursor(self, name: str, seq: int) -> None:
        self._cursors[name] = max(seq, self._cursors.get(name, seq))

    async def add_audit(self, rows: Sequence[AuditRow]) -> None:
        self._chain, linked = link(self._chain, map(audit_row, rows))
        self._audit += linked

    async def audit(self, limit: int = 100) -> Sequence[AuditRow]:
        return [audit_of(row) for row in self._audit[::-1][:limit]]

    async def check_audit(self) -> bool:
        verifier = Verifier(self._chain)
        return all(map(verifier.accepts, self._audit)) and verifier.is_complete()


def _is_chosen(event: Event, where: EventFilter) -> bool:
    return (
        (where.task_id is None or where.task_id in event.task_ids)
        and (not where.event_types or event.event_type in where.event_types)
        and (not where.severities or event.severity in where.severities)
        and where.node_id in (None, event.source_node_id)
        and where.is_open in (None, event.resolved_at is None)
        and (where.with_tasks or not event.event_type.startswith(OF_TASKS))
    )
