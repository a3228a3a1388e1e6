"""The in-memory twin of the store: same answers, nothing kept after the process.

For tests and for trying things out; the contract suite holds it to PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from corral.core.insight.event import ALERT, OF_TASKS, Event, EventPage, EventQuery
from corral.core.tasks.job_type import JobType
from corral.core.tasks.task import Task
from corral.store.base import AuditRow, Retention
from corral.store.postgres.audit_chain import Chain, Verifier, link
from corral.store.postgres.rows import audit_of, audit_row, event_of, event_row
from corral.store.text import clean
from tests.twins.store_metrics import MemoryMetrics, MemoryUsageRows
from tests.twins.store_registry import (
    MemoryCatalogue,
    MemoryLearned,
    MemoryModels,
    MemoryRegistry,
    MemoryResults,
    MemoryShares,
)
from tests.twins.store_state import MemoryTables
from tests.twins.store_tasks import MemoryArtifacts, MemoryRead, MemoryWrite

# Events and the audit log in memory.


class MemoryEvents(MemoryTables):
    async def add_events(self, events: Sequence[Event]) -> None:
        for event in events:
            # Through the row and back, as a database would give it.
            at = event.at or datetime.now(UTC)
            self._append(event_of(event_row(replace(event, at=at)) | {"seq": 0}))

    async def events(self, after_seq: int = 0, limit: int = 100) -> Sequence[Event]:
        found = [event for event in self._events if event.seq > after_seq]
        return found[:limit] if after_seq > 0 else found[-limit:]

    async def event_page(
        self, where: EventQuery, after_seq: int = 0, limit: int = 100
    ) -> EventPage:
        end = max(after_seq, self._events[-1].seq if self._events else 0)
        if where.task_id is not None and where.task_id not in self._tasks:
            return EventPage((), end)
        found = [e for e in self._events if e.seq > after_seq and _is_chosen(e, where)]
        events = tuple(found[:limit] if after_seq > 0 else found[-limit:])
        is_cut = after_seq > 0 and len(events) == limit
        return EventPage(events, events[-1].seq if is_cut else end)

    async def alerts(self, where: EventQuery, limit: int = 1000) -> Sequence[Event]:
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


def _is_chosen(event: Event, where: EventQuery) -> bool:
    return (
        (where.task_id is None or where.task_id in event.task_ids)
        and (not where.event_types or event.event_type in where.event_types)
        and (not where.severities or event.severity in where.severities)
        and where.node_id in (None, event.source_node_id)
        and where.is_open in (None, event.resolved_at is None)
        and (where.with_tasks or not event.event_type.startswith(OF_TASKS))
    )


class MemoryStore(
    MemoryWrite,
    MemoryRead,
    MemoryArtifacts,
    MemoryRegistry,
    MemoryModels,
    MemoryCatalogue,
    MemoryShares,
    MemoryLearned,
    MemoryResults,
    MemoryMetrics,
    MemoryUsageRows,
    MemoryEvents,
):
    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def ping(self) -> None: ...

    async def take_lead(self, holder: str, now: datetime) -> int:
        self._term += 1
        return self._term

    async def term(self) -> int:
        return self._term

    async def prune(self, now: datetime, keep: Retention) -> Mapping[str, int]:
        def end(seconds: float) -> datetime:
            return now - timedelta(seconds=seconds)

        await self.roll_up(now)
        gone = self._prune_tasks(end(keep.tasks_s))
        events = [e for e in self._events if _is_kept(e, end(keep.events_s))]
        gone["cluster_events"] = len(self._events) - len(events)
        self._events = events
        gone |= self._prune_metrics(now, keep)
        gone["audit"] = self._prune_audit(end(keep.audit_s))
        return {table: count for table, count in gone.items() if count}

    async def clear(self, term: int, keep: Sequence[JobType]) -> Mapping[str, int]:
        self._check_term(term)
        kept = {job_type.name: job_type for job_type in keep}
        gone = {
            "worker_types": len(self._worker_types),
            "job_types": len(self._job_types.keys() - kept.keys()),
        }
        self._worker_types.clear()
        self._job_types = kept
        self._results.clear()
        gone |= self._prune_tasks(datetime.max.replace(tzinfo=UTC))
        return {table: count for table, count in gone.items() if count}

    def _prune_tasks(self, end: datetime) -> dict[str, int]:
        live = (task for task in self._tasks.values() if not task.is_terminal)
        needed = {id_ for task in live for id_ in task.spec.depends_on}
        dead = {
            task.id
            for task in self._tasks.values()
            if _ended_before(task, end) and task.id not in needed
        }
        attempts = sum(len(self._attempts.pop(id_, ())) for id_ in dead)
        chunks = [place for place in self._logs if place[0] in dead]
        for place in chunks:
            del self._logs[place]
        for id_ in dead:
            del self._tasks[id_]
        self._keyed = {k: id_ for k, id_ in self._keyed.items() if id_ not in dead}
        return {
            "tasks": len(dead),
            "attempts": attempts,
            "log_chunks": len(chunks),
            "kept_trees": self._forget_trees_of(dead),
        }

    def _prune_audit(self, end: datetime) -> int:
        count = 0
        while count < len(self._audit) and self._audit[count]["at"] < end:
            count += 1
        if count:
            last, chain = self._audit[count - 1], self._chain
            self._chain = Chain(
                last["seq"] + 1, last["hash"], chain.last_seq, chain.last_hash
            )
            del self._audit[:count]
        return count


def _is_kept(event: Event, end: datetime) -> bool:
    is_open = event.event_type == ALERT and event.resolved_at is None
    return is_open or (event.at is not None and event.at >= end)


def _ended_before(task: Task, end: datetime) -> bool:
    return task.finished_at is not None and task.finished_at < end
