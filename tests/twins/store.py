"""The in-memory twin of the store: same answers, nothing kept after the process.

For tests and for trying things out; the contract suite holds it to PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from corral.core.access.key import Key
from corral.core.access.secret import Secret
from corral.core.insight.event import ALERT, OF_TASKS, Event, EventPage, EventQuery
from corral.core.tasks.job_type import JobType
from corral.core.tasks.task import Task
from corral.store.base import (
    EVERYTHING,
    AccessStore,
    AuditQuery,
    AuditReport,
    AuditRow,
    EventStore,
    MetricStore,
    ModelStore,
    OutputStore,
    QueueStore,
    RegistryStore,
    ResultStore,
    Retention,
    TaskStore,
)
from corral.store.postgres.audit_chain import Verifier, cut, link
from corral.store.postgres.rows import audit_of, audit_row, event_of, event_row
from corral.store.text import clean
from tests.twins.store_metrics import MemoryMetrics
from tests.twins.store_registry import (
    MemoryModels,
    MemoryQueues,
    MemoryRegistry,
    MemoryResults,
)
from tests.twins.store_state import AUDIT_KEY, MemoryTables
from tests.twins.store_tasks import MemoryOutput, MemoryTasks

# Events in memory.


@dataclass(frozen=True, slots=True)
class MemoryEvents:
    _tables: MemoryTables

    async def add_events(self, events: Sequence[Event]) -> None:
        for event in events:
            # Through the row and back, as a database would give it.
            at = event.at or datetime.now(UTC)
            self._tables.append(event_of(event_row(replace(event, at=at)) | {"seq": 0}))

    async def events(self, after_seq: int = 0, limit: int = 100) -> Sequence[Event]:
        found = [event for event in self._tables.events if event.seq > after_seq]
        return found[:limit] if after_seq > 0 else found[-limit:]

    async def event_page(
        self, where: EventQuery, after_seq: int = 0, limit: int = 100
    ) -> EventPage:
        end = max(after_seq, self._tables.events[-1].seq if self._tables.events else 0)
        if where.task_id is not None and where.task_id not in self._tables.tasks:
            return EventPage((), end)
        found = [
            e for e in self._tables.events if e.seq > after_seq and _is_chosen(e, where)
        ]
        events = tuple(found[:limit] if after_seq > 0 else found[-limit:])
        is_cut = after_seq > 0 and len(events) == limit
        return EventPage(events, events[-1].seq if is_cut else end)

    async def alerts(self, where: EventQuery, limit: int = 1000) -> Sequence[Event]:
        found = (e for e in self._tables.events[::-1] if e.event_type == ALERT)
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
        for place, event in enumerate(self._tables.events):
            if event.seq == seq and event.event_type == ALERT:
                if event.resolved_at is None:
                    # Through the row and back, as a database would give it.
                    changed = change(event)
                    data = event_of(event_row(changed) | {"seq": seq}).data
                    self._tables.events[place] = replace(changed, data=data)
                return self._tables.events[place]
        return None

    async def cursor(self, name: str) -> int | None:
        return self._tables.cursors.get(name)

    async def save_cursor(self, name: str, seq: int) -> None:
        self._tables.cursors[name] = max(seq, self._tables.cursors.get(name, seq))


def _is_chosen(event: Event, where: EventQuery) -> bool:
    return (
        (where.task_id is None or where.task_id in event.task_ids)
        and (not where.event_types or event.event_type in where.event_types)
        and (not where.severities or event.severity in where.severities)
        and where.node_id in (None, event.source_node_id)
        and where.is_open in (None, event.resolved_at is None)
        and (where.with_tasks or not event.event_type.startswith(OF_TASKS))
    )


# Keys, secrets and the audit log in memory.


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    _tables: MemoryTables

    async def save_key(self, key: Key) -> None:
        self._tables.keys[key.id] = key

    async def keys(self) -> Sequence[Key]:
        return [self._tables.keys[id_] for id_ in sorted(self._tables.keys)]

    async def save_secret(self, secret: Secret) -> None:
        self._tables.secrets[secret.name] = secret

    async def delete_secret(self, name: str) -> None:
        self._tables.secrets.pop(name, None)

    async def secrets(self) -> Sequence[Secret]:
        return [self._tables.secrets[name] for name in sorted(self._tables.secrets)]

    async def use_key(self, key_id: str, now: datetime) -> bool:
        key = self._tables.keys.get(key_id)
        if key is None or not key.is_valid(now):
            return False
        if key.uses_left is not None:
            self._tables.keys[key_id] = replace(key, uses_left=key.uses_left - 1)
        return True

    async def stamp_keys(self, used: Mapping[str, datetime]) -> None:
        for key_id, at in used.items():
            if (key := self._tables.keys.get(key_id)) is not None:
                self._tables.keys[key_id] = replace(key, last_used_at=at)

    async def end_session(self, digest: str, until: datetime, now: datetime) -> None:
        kept = {d: at for d, at in self._tables.ended_sessions.items() if at > now}
        self._tables.ended_sessions = {**kept, digest: until}

    async def ended_sessions(self) -> Mapping[str, datetime]:
        return dict(self._tables.ended_sessions)

    async def add_audit(self, rows: Sequence[AuditRow]) -> int:
        chain, linked = link(self._tables.chain, map(audit_row, rows), AUDIT_KEY)
        self._tables.chain = chain
        self._tables.audit += linked
        return chain.last_seq

    async def audit(
        self, limit: int = 100, where: AuditQuery = EVERYTHING
    ) -> Sequence[AuditRow]:
        rows = map(audit_of, self._tables.audit[::-1])
        return [row for row in rows if _is_wanted(row, where)][:limit]

    async def check_audit(self) -> AuditReport:
        verifier = Verifier(self._tables.chain, AUDIT_KEY)
        all(map(verifier.accepts, self._tables.audit))
        return verifier.report()


def _is_wanted(row: AuditRow, where: AuditQuery) -> bool:
    return (
        (not where.actors or row.actor in where.actors)
        and row.action.startswith(where.action)
        and row.target.startswith(where.target)
        and where.allowed in (None, row.allowed)
        and (where.since is None or row.at >= where.since)
        and (where.until is None or row.at < where.until)
        and (where.before is None or row.seq < where.before)
    )


class MemoryStore:
    def __init__(self) -> None:
        self._tables = tables = MemoryTables()
        self._metrics = MemoryMetrics(tables)
        self.tasks: TaskStore = MemoryTasks(tables)
        self.output: OutputStore = MemoryOutput(tables)
        self.registry: RegistryStore = MemoryRegistry(tables)
        self.models: ModelStore = MemoryModels(tables)
        self.queues: QueueStore = MemoryQueues(tables)
        self.events: EventStore = MemoryEvents(tables)
        self.metrics: MetricStore = self._metrics
        self.access: AccessStore = MemoryAccess(tables)
        self.results: ResultStore = MemoryResults(tables)

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def ping(self) -> None: ...

    async def take_lead(self, holder: str, now: datetime) -> int:
        self._tables.term += 1
        return self._tables.term

    async def term(self) -> int:
        return self._tables.term

    async def prune(self, now: datetime, keep: Retention) -> Mapping[str, int]:
        def end(seconds: float) -> datetime:
            return now - timedelta(seconds=seconds)

        await self._metrics.roll_up(now)
        gone = self._prune_tasks(end(keep.tasks_s))
        events = [e for e in self._tables.events if _is_kept(e, end(keep.events_s))]
        gone["cluster_events"] = len(self._tables.events) - len(events)
        self._tables.events = events
        gone |= self._metrics.prune(now, keep)
        gone["audit"] = self._prune_audit(end(keep.audit_s))
        return {table: count for table, count in gone.items() if count}

    async def clear(self, term: int, keep: Sequence[JobType]) -> Mapping[str, int]:
        self._tables.check_term(term)
        kept = {job_type.name: job_type for job_type in keep}
        gone = {
            "worker_types": len(self._tables.worker_types),
            "job_types": len(self._tables.job_types.keys() - kept.keys()),
        }
        self._tables.worker_types.clear()
        self._tables.job_types = kept
        self._tables.results.clear()
        gone |= self._prune_tasks(datetime.max.replace(tzinfo=UTC))
        return {table: count for table, count in gone.items() if count}

    def _prune_tasks(self, end: datetime) -> dict[str, int]:
        live = (task for task in self._tables.tasks.values() if not task.is_terminal)
        needed = {id_ for task in live for id_ in task.spec.depends_on}
        dead = {
            task.id
            for task in self._tables.tasks.values()
            if _ended_before(task, end) and task.id not in needed
        }
        attempts = sum(len(self._tables.attempts.pop(id_, ())) for id_ in dead)
        chunks = [place for place in self._tables.logs if place[0] in dead]
        for place in chunks:
            del self._tables.logs[place]
        for id_ in dead:
            del self._tables.tasks[id_]
        self._tables.keyed = {
            k: id_ for k, id_ in self._tables.keyed.items() if id_ not in dead
        }
        return {
            "tasks": len(dead),
            "attempts": attempts,
            "log_chunks": len(chunks),
            "kept_trees": self._forget_trees_of(dead),
        }

    def _prune_audit(self, end: datetime) -> int:
        count = 0
        while count < len(self._tables.audit) and self._tables.audit[count]["at"] < end:
            count += 1
        if count:
            last, chain = self._tables.audit[count - 1], self._tables.chain
            self._tables.chain = cut(chain, last["seq"], last["hash"], AUDIT_KEY)
            del self._tables.audit[:count]
        return count

    def _forget_trees_of(self, task_ids: Collection[str]) -> int:
        gone = [place for place in self._tables.trees if place[0] in task_ids]
        for place in gone:
            del self._tables.trees[place]
        return len(gone)


def _is_kept(event: Event, end: datetime) -> bool:
    is_open = event.event_type == ALERT and event.resolved_at is None
    return is_open or (event.at is not None and event.at >= end)


def _ended_before(task: Task, end: datetime) -> bool:
    return task.finished_at is not None and task.finished_at < end
