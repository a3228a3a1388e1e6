"""Events and the audit log in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from corral.store.audit import Verifier, link
from corral.store.base import AuditRow, Event
from corral.store.memory_shelf import MemoryShelf
from corral.store.record import audit_of, audit_row, event_of, event_row


class MemoryHistory(MemoryShelf):
    async def add_events(self, events: Sequence[Event]) -> None:
        for event in events:
            # Through the row and back, as a database would give it.
            at = event.at or datetime.now(UTC)
            self._append(event_of(event_row(replace(event, at=at)) | {"seq": 0}))

    async def events(
        self, after_seq: int = 0, limit: int = 100, task_id: str | None = None
    ) -> Sequence[Event]:
        if task_id is not None and task_id not in self._tasks:
            return []
        found = [
            event
            for event in self._events
            if event.seq > after_seq and (task_id is None or task_id in event.task_ids)
        ]
        return found[:limit] if after_seq > 0 else found[-limit:]

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
