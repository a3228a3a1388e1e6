"""The in-memory twin of the store: same answers, nothing kept after the process.

For tests and for trying things out; the contract suite holds it to PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from corral.core.tasks.job_type import JobType
from corral.core.tasks.task import Task
from corral.store.audit import Chain
from corral.store.base import Retention
from corral.store.event import ALERT, Event
from corral.store.memory_catalogue import MemoryCatalogue
from corral.store.memory_history import MemoryHistory
from corral.store.memory_kept import MemoryKept
from corral.store.memory_learned import MemoryLearned
from corral.store.memory_metrics import MemoryMetrics
from corral.store.memory_model import MemoryModels
from corral.store.memory_read import MemoryRead
from corral.store.memory_registry import MemoryRegistry
from corral.store.memory_result_cache import MemoryResults
from corral.store.memory_share import MemoryShares
from corral.store.memory_usage import MemoryUsage
from corral.store.memory_write import MemoryWrite


class MemoryStore(
    MemoryWrite,
    MemoryRead,
    MemoryKept,
    MemoryRegistry,
    MemoryModels,
    MemoryCatalogue,
    MemoryShares,
    MemoryLearned,
    MemoryResults,
    MemoryMetrics,
    MemoryUsage,
    MemoryHistory,
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
