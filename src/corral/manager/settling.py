"""Ends attempts: one guarded array write per batch, then memory follows the store."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from corral.core.report import Outcome, OutcomeKind
from corral.core.retry import RetryPolicy, Settlement, settle
from corral.core.task import State, Task, TaskError
from corral.errors import StoreUnavailable
from corral.manager.clock import Clock
from corral.manager.commit import GroupCommit
from corral.manager.state import Cluster
from corral.scheduler.value import DependencyMet, TasksGone, TasksQueued
from corral.store.base import Store


class Settling:
    """The only way a task leaves a worker, a queue, or the cluster."""

    def __init__(
        self, cluster: Cluster, store: Store, clock: Clock, policy: RetryPolicy
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._clock = clock
        self._policy = policy
        self._luck = random.Random()
        self._writes: GroupCommit[Sequence[Settlement], set[str]] = GroupCommit(
            self._commit
        )

    async def settle(self, outcomes: Iterable[Outcome]) -> set[str]:
        """Apply outcomes of live attempts; ids that changed. Stale ones are ignored."""
        now = self._clock.now()
        settlements = []
        for outcome in outcomes:
            task = self._cluster.tasks.get(outcome.task_id)
            if task is None or task.attempt != outcome.attempt:
                continue
            settlements.append(
                settle(task, outcome, now, self._policy, self._luck.random())
            )
        return await self._writes.put(settlements) if settlements else set()

    async def fail(self, task_ids: Iterable[str], kind: str, message: str) -> set[str]:
        """End tasks that cannot run, whatever tries they have left."""
        now = self._clock.now()
        rows = []
        for task_id in task_ids:
            if task := self._cluster.tasks.get(task_id):
                rows.append(_failure(task, kind, message, now))
        return await self._writes.put(rows) if rows else set()

    async def expire(self, task_ids: Iterable[str]) -> set[str]:
        now = self._clock.now()
        message = "its deadline passed before it could start"
        rows = [
            replace(
                _failure(task, "deadline", message, now),
                state=State.TIMED_OUT,
                outcome=OutcomeKind.TIMED_OUT,
            )
            for task_id in task_ids
            if (task := self._cluster.tasks.get(task_id))
        ]
        return await self._writes.put(rows) if rows else set()

    async def _commit(self, batch: Sequence[Sequence[Settlement]]) -> list[set[str]]:
        flat = [s for rows in batch for s in rows]
        try:
            applied = await self._store.settle_tasks(self._cluster.term, flat)
        except StoreUnavailable:
            self._cluster.is_dirty = True
            raise
        await self._follow(flat, applied)
        return [{s.task_id for s in rows if s.task_id in applied} for rows in batch]

    async def _follow(self, flat: Sequence[Settlement], applied: set[str]) -> None:
        again: list[Task] = []
        doomed: list[str] = []
        refused = []
        for row in flat:
            task = self._cluster.tasks.get(row.task_id)
            if task is None or task.attempt != row.attempt:
                continue
            if row.task_id not in applied:
                refused.append(row.task_id)
            elif row.state is State.QUEUED:
                again.append(self._back(task, row))
            else:
                self._end(task, row.state is State.COMPLETED, doomed)
        if again:
            waiting = tuple(self._cluster.waiting(t) for t in again)
            self._cluster.scheduler.apply(TasksQueued(waiting))
        if refused:
            await self.sync(refused)
        if doomed:
            await self._doom(doomed)

    def _back(self, task: Task, row: Settlement) -> Task:
        self._cluster.close_attempt(task)
        spec = task.spec
        if row.run_after is not None:
            spec = replace(spec, run_after=row.run_after)
        back = replace(
            task,
            spec=spec,
            state=State.QUEUED,
            attempt=row.attempt + 1,
            tries=row.tries,
            losses=row.losses,
            worker_id=None,
            incarnation=None,
            node_id=None,
            assigned_at=None,
            started_at=None,
        )
        self._cluster.progress.pop(task.id, None)
        self._cluster.tasks[task.id] = back
        return back

    def _end(self, task: Task, is_completed: bool, doomed: list[str]) -> None:
        scheduler = self._cluster.scheduler
        if task.state is State.QUEUED:
            scheduler.apply(TasksGone((task.id,)))
        else:
            self._cluster.close_attempt(task)
        if is_completed:
            scheduler.apply(DependencyMet(task.id))
        else:
            doomed.extend(scheduler.dependents(task.id))
        self._cluster.end(task.id)

    async def _doom(self, task_ids: Sequence[str]) -> None:
        # Runs inside the commit loop, so it must not wait for another commit of it.
        now = self._clock.now()
        message = "a task it depends on did not complete"
        rows = [
            _failure(task, "dependency_failed", message, now)
            for task_id in task_ids
            if (task := self._cluster.tasks.get(task_id))
        ]
        applied = await self._store.settle_tasks(self._cluster.term, rows)
        await self._follow(rows, applied)

    async def sync(self, task_ids: Sequence[str]) -> None:
        """Where the store refused a write, take over what it has."""
        for stored in await self._store.get_tasks(task_ids):
            task = self._cluster.tasks.get(stored.id)
            if task is None:
                continue
            if stored.is_terminal:
                self._end(task, stored.state is State.COMPLETED, [])
            else:
                self._cluster.is_dirty = True


def _failure(task: Task, kind: str, message: str, now: datetime) -> Settlement:
    return Settlement(
        task_id=task.id,
        attempt=task.attempt,
        state=State.FAILED,
        outcome=OutcomeKind.FAILED,
        tries=task.tries,
        losses=task.losses,
        finished_at=now,
        error=TaskError(kind, message),
        dead_letter=kind,
    )
