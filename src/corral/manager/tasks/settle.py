"""Ends attempts: one guarded array write per batch, then memory follows the store.

Also what an attempt's end means where its worker did not say so: it ran out of GPU
memory, its worker is gone, its deadline passed, what it depends on failed.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from corral.core.tasks.outcome import (
    OUT_OF_MEMORY,
    Outcome,
    OutcomeKind,
    RetryPolicy,
    Settlement,
    settle,
)
from corral.core.tasks.task import State, Task, TaskError, TaskSpec
from corral.errors import StoreUnavailable
from corral.manager.cluster.state import Cluster
from corral.manager.context import ManagerContext
from corral.manager.group_commit import GroupCommit
from corral.manager.signals import TasksSettled
from corral.manager.tasks.payload_schema import checked
from corral.scheduler.events import DependencyMet, OutOfMemory, TasksGone, TasksQueued
from corral.store.base import TaskStore

log = logging.getLogger(__name__)
FOLLOWED_S = 1.0
"""Of tasks that are over sooner nobody reads, and there may be thousands."""
_LOUD = frozenset(
    {
        OutcomeKind.FAILED,
        OutcomeKind.TIMED_OUT,
        OutcomeKind.CANCELLED,
        OutcomeKind.LOST,
    }
)


class Settle:
    """The only way a task leaves a worker, a queue, or the cluster."""

    def __init__(self, ctx: ManagerContext, policy: RetryPolicy) -> None:
        self._cluster = ctx.cluster
        self._store: TaskStore = ctx.store.tasks
        self._clock = ctx.clock
        self._policy = policy
        self._luck = random.Random()
        self._signals = ctx.signals
        self._counters = ctx.counters
        self._writes: GroupCommit[Sequence[Settlement], set[str]] = GroupCommit(
            self._commit
        )

    async def settle(self, outcomes: Iterable[Outcome]) -> set[str]:
        """Apply outcomes of live attempts; ids that changed. Stale ones are ignored."""
        now = self._clock.now()
        settlements = []
        worked: list[tuple[Task, Outcome]] = []
        for outcome in outcomes:
            task = self._cluster.tasks.get(outcome.task_id)
            if task is None or task.attempt != outcome.attempt:
                continue
            outcome = checked(self._cluster.job_types.get(task.spec.job_type), outcome)
            outcome = with_more_memory(self._cluster, task, outcome)
            settlements.append(
                settle(task, outcome, now, self._policy, self._luck.random())
            )
            if outcome.started_at is not None:
                worked.append((task, outcome))
        changed = await self._writes.put(settlements) if settlements else set()
        self._counters.ran(worked, changed)
        return changed

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

    async def finish(self, rows: Sequence[Settlement]) -> set[str]:
        """End tasks that need no worker; ids that changed."""
        return await self._writes.put(rows) if rows else set()

    async def _commit(self, batch: Sequence[Sequence[Settlement]]) -> list[set[str]]:
        flat = [s for rows in batch for s in rows]
        try:
            applied = await self._write(flat)
        except StoreUnavailable:
            self._cluster.doubt()
            raise
        # If we die here nobody was answered: the worker reports again, to a manager
        # that no longer has this attempt and takes the word for stale.
        await self._doom(await self._follow(flat, applied))
        return [{s.task_id for s in rows if s.task_id in applied} for rows in batch]

    async def _write(self, rows: Sequence[Settlement]) -> set[str]:
        with self._signals.writing() as tell:
            applied = await self._store.settle_tasks(self._cluster.term, rows)
            tell(TasksSettled(rows, applied))
        return applied

    async def _follow(
        self, flat: Sequence[Settlement], applied: set[str]
    ) -> Mapping[str, str]:
        """Let memory follow what was written; who falls with it, and through whom."""
        again: list[Task] = []
        doomed: dict[str, str] = {}
        refused = []
        ended: list[tuple[Task, State]] = []
        settled: list[tuple[Task, Settlement]] = []
        says_all = log.isEnabledFor(logging.DEBUG)
        # No await from here to `sync`: nobody sees half a batch.
        for row in flat:
            # Read again: it may have moved on while the batch was written.
            task = self._cluster.tasks.get(row.task_id)
            if task is None or task.attempt != row.attempt:
                continue
            if row.task_id not in applied:
                refused.append(row.task_id)
                continue
            settled.append((task, row))
            worked_s = _worked_s(task, row)
            if worked_s >= FOLLOWED_S or says_all or row.outcome in _LOUD:
                _tell(task, row, worked_s)
            if row.state is State.QUEUED:
                again.append(self._back(task, row, worked_s))
            else:
                ended.append((task, row.state))
                doomed |= self._end(task, row.state, worked_s)
        # Before those that wait again could start: a gang may have to be taken back.
        self._signals.settled.tell(settled)
        self._signals.ended.tell(ended)
        if again:
            waiting = tuple(self._cluster.waiting(t) for t in again)
            self._cluster.scheduler.apply(TasksQueued(waiting))
        await self.sync(refused)
        return doomed

    def _back(self, task: Task, row: Settlement, worked_s: float) -> Task:
        self._cluster.close_attempt(task, worked_s)
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
        self._cluster.followers.ring(task.id)
        self._cluster.tasks[task.id] = back
        return back

    def _end(self, task: Task, state: State, worked_s: float) -> dict[str, str]:
        """Forget an ended task; who falls with it, and through whom."""
        scheduler = self._cluster.scheduler
        doomed: dict[str, str] = {}
        if task.state is State.QUEUED:
            scheduler.apply(TasksGone((task.id,)))
        else:
            self._cluster.close_attempt(task, worked_s)
        if state is State.COMPLETED:
            scheduler.apply(DependencyMet(task.id))
        else:
            doomed = dict.fromkeys(scheduler.dependents(task.id), task.id)
        self._cluster.end(task.id)
        return doomed

    async def _doom(self, doomed: Mapping[str, str]) -> None:
        """Fail tasks, each through the dependency it is given with.

        What the caller wanted is written by now: an outage here is the rescue loop's.
        """
        # Runs inside the commit loop, so it must not wait for another commit of it.
        # One level after the other, and no deeper call for each: chains may be long.
        message = "it depends on task {}, which did not complete"
        while doomed:
            now = self._clock.now()
            rows = [
                _failure(task, "dependency_failed", message.format(need), now)
                for task_id, need in doomed.items()
                if (task := self._cluster.tasks.get(task_id))
            ]
            if not rows:
                return
            try:
                applied = await self._write(rows)
            except StoreUnavailable:
                self._cluster.doubt()
                return
            doomed = await self._follow(rows, applied)

    async def sync(self, task_ids: Sequence[str]) -> None:
        """Where the store refused a write, take over what it has."""
        found = await self._look_up(task_ids)
        # Those not found are on their way in: their submit is not yet written.
        ended = {t.id for t in found if t.is_terminal}
        self._cluster.doubt(
            any(t in self._cluster.tasks for t in task_ids if t not in ended)
        )
        await self.follow(found)

    async def _look_up(self, task_ids: Sequence[str]) -> Sequence[Task]:
        try:
            return await self._store.get_tasks(task_ids) if task_ids else ()
        except StoreUnavailable:
            self._cluster.doubt()
            return ()

    async def follow(self, stored: Iterable[Task]) -> None:
        """Let memory end those tasks that have ended in the store."""
        doomed: dict[str, str] = {}
        ended: list[tuple[Task, State]] = []
        for row in stored:
            task = self._cluster.tasks.get(row.id)
            if task is not None and row.is_terminal:
                ended.append((task, row.state))
                doomed |= self._end(task, row.state, _worked_s(task, row))
        self._signals.ended.tell(ended)
        await self._doom(doomed)

    async def resolve(self, needs: Iterable[str]) -> None:
        """Free or fail those who wait for tasks that are no longer live."""
        ended = sorted({n for n in needs if n not in self._cluster.tasks})
        if not ended:
            return
        try:
            states = {t.id: t.state for t in await self._store.get_tasks(ended)}
        except StoreUnavailable:
            self._cluster.doubt()
            return
        scheduler = self._cluster.scheduler
        doomed: dict[str, str] = {}
        for need in ended:
            if states.get(need) is State.COMPLETED:
                scheduler.apply(DependencyMet(need))
            elif need not in self._cluster.tasks:
                doomed |= dict.fromkeys(scheduler.dependents(need), need)
        await self._doom(doomed)


def with_more_memory(cluster: Cluster, task: Task, outcome: Outcome) -> Outcome:
    """The outcome; one that a larger card may mend sends the task back, uncharged."""
    error = outcome.error
    is_short = error is not None and error.kind == OUT_OF_MEMORY
    if outcome.kind is not OutcomeKind.FAILED or not is_short:
        return outcome
    spec, scheduler = task.spec, cluster.scheduler
    before = scheduler.floor_mb(spec.job_type, spec.model)
    scheduler.apply(
        OutOfMemory(task.id, spec.job_type, spec.model, task.worker_id or "")
    )
    is_known = scheduler.floor_mb(spec.job_type, spec.model) > before
    if not is_known or not scheduler.fits_somewhere(cluster.waiting(task)):
        return outcome
    return replace(outcome, kind=OutcomeKind.RETURNED, result=None)


def orphan(task: Task, *, is_charged: bool) -> Outcome:
    """A task whose worker died: a loss only if it was seen running there."""
    if task.state is State.RUNNING and is_charged:
        error = TaskError("worker_died", f"worker {task.worker_id} died under it")
        return Outcome(task.id, task.attempt, OutcomeKind.LOST, error=error)
    return Outcome(task.id, task.attempt, OutcomeKind.RETURNED)


def homeless(tasks: Iterable[Task], worker_id: str) -> Iterator[Outcome]:
    """Of all tasks those for one worker alone, which was stopped for good."""
    error = TaskError("worker_gone", "the one worker it was for has been stopped")
    for task in tasks:
        if task.spec.options.only_on == worker_id:
            end = Outcome(task.id, task.attempt, OutcomeKind.FAILED, error=error)
            yield replace(end, is_final=True)


def told_of(spec: TaskSpec) -> dict[str, object]:
    """What every log line about a task says of it."""
    told: dict[str, object] = {"task_id": spec.id, "task_type": spec.job_type}
    if spec.options.request_id:
        told["request_id"] = spec.options.request_id
    return told


def _tell(task: Task, row: Settlement, worked_s: float) -> None:
    is_loud = worked_s >= FOLLOWED_S or row.outcome in _LOUD
    told = told_of(task.spec) | {
        "attempt": row.attempt,
        "status": str(row.state),
        "outcome": str(row.outcome),
        "duration_s": round(worked_s, 6),
    }
    if row.error is not None:
        told["error"] = row.error.message[:500]
    event = "task_requeued" if row.state is State.QUEUED else "task_ended"
    log.log(logging.INFO if is_loud else logging.DEBUG, event, extra=told)


def _worked_s(task: Task, ended: Settlement | Task) -> float:
    """How long its worker had been at it."""
    began = ended.started_at or task.started_at
    if began is None or ended.finished_at is None:
        return 0.0
    return max(0.0, (ended.finished_at - began).total_seconds())


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
