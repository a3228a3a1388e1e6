"""Takes workers' reports: outcomes into the record, the next order into the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from corral.core.nodes.worker import WorkerState
from corral.core.tasks.job_type import OWN_TYPES
from corral.core.tasks.report import Outcome, OutcomeKind
from corral.core.tasks.task import State, advance
from corral.errors import Conflict, StoreUnavailable
from corral.manager.cluster.held_models import ReportedModels
from corral.manager.cluster.state import Kind, WorkerLink
from corral.manager.cluster.streams import AttemptPieces
from corral.manager.context import ManagerContext
from corral.manager.group_commit import GroupCommit
from corral.manager.signals import TasksStarted
from corral.manager.tasks.cancel import stopped
from corral.manager.tasks.dispatch import Dispatch
from corral.manager.tasks.settle import Settle
from corral.store.base import LogChunk

Started = tuple[str, int, datetime]


@dataclass(frozen=True, slots=True)
class Report:
    """One numbered word of a worker incarnation; see docs/design/wire.md."""

    incarnation: str
    report_id: str
    outcomes: Sequence[Outcome] = ()
    started: Sequence[Started] = ()
    progress: Sequence[tuple[str, int, float, str]] = ()
    logs: Sequence[LogChunk] = ()
    wants_order: bool = False
    state: WorkerState | None = None
    error: str | None = None
    models: ReportedModels | None = None
    output: Sequence[AttemptPieces] = ()


class TaskReports:
    def __init__(self, ctx: ManagerContext, settle: Settle, dispatch: Dispatch) -> None:
        self._cluster = ctx.cluster
        self._store = ctx.store
        self._settle = settle
        self._dispatch = dispatch
        self._clock = ctx.clock
        self._signals = ctx.signals
        self._counters = ctx.counters
        self._starts: GroupCommit[Sequence[Started], None] = GroupCommit(self._start)

    async def report(self, link: WorkerLink, report: Report) -> dict[str, Any]:
        """Carry out a report once; a repeated one gets the same answer."""
        if report.incarnation != link.worker.incarnation:
            raise Conflict(
                "this worker incarnation is no longer the current one",
                worker_id=link.id,
            )
        # A worker that got no answer in time sends the same report again, perhaps while
        # the first is still at work. One that gives up must not end what others await.
        known = link.answers.get(report.report_id)
        if known is not None:
            return await asyncio.shield(known)
        answer = link.remember_answer(report.report_id)
        try:
            result = await self._carry_out(link, report)
        except BaseException as e:
            # Not carried out, so not remembered: the next copy tries anew.
            link.answers.pop(report.report_id, None)
            answer.set_exception(e)
            answer.exception()
            raise
        answer.set_result(result)
        return result

    # Output and logs come before outcomes: who sees the end finds all that was said.
    # If we die between, the report comes again; logs have numbers, so none is doubled.
    async def _carry_out(self, link: WorkerLink, report: Report) -> dict[str, Any]:
        for pieces in report.output:
            if self._is_current(link, pieces.task_id, pieces.attempt):
                self._cluster.streams.add(pieces)
                self._cluster.followers.ring(pieces.task_id)
        if report.logs:
            own = await self._own_logs(link, report.logs)
            await self._store.output.add_logs(own)
            for task_id in {chunk.task_id for chunk in own}:
                self._cluster.followers.ring(task_id)
        outcomes = [
            o for o in report.outcomes if self._is_current(link, o.task_id, o.attempt)
        ]
        ended = {(o.task_id, o.attempt) for o in report.outcomes}
        if link.lingering and stopped(self._cluster, link, ended):
            self._dispatch.kick()
        # No await since `outcomes` were found current: their tasks must be there.
        self._learn(link, outcomes)
        # Ends before starts: what began and ended since the last report is no longer
        # due, and needs no write that says it runs.
        await self._settle.settle(outcomes)
        await self.start(link, report.started)
        for task_id, attempt, fraction, message in report.progress:
            if self._is_current(link, task_id, attempt):
                self._cluster.progress[task_id] = (fraction, message)
                self._cluster.followers.ring(task_id)
        order = await self._next_order(link) if report.wants_order else None
        if outcomes and not report.wants_order:
            self._dispatch.kick()
        answer: dict[str, Any] = {"order": order, "drop": [list(d) for d in link.drops]}
        if link.execs:
            answer["execs"] = list(link.execs.values())
        return answer

    async def start(self, link: WorkerLink, started: Sequence[Started]) -> None:
        """Note that these attempts run now."""
        due = [s for s in started if self._is_due(link, s)]
        if due:
            await self._starts.put(due)

    def _is_current(self, link: WorkerLink, task_id: str, attempt: int) -> bool:
        task = self._cluster.tasks.get(task_id)
        return (
            task is not None
            and task.attempt == attempt
            and task.incarnation == link.worker.incarnation
        )

    async def _own_logs(
        self, link: WorkerLink, chunks: Sequence[LogChunk]
    ) -> list[LogChunk]:
        """Those of attempts this worker has or had; last words may come late."""
        own: list[LogChunk] = []
        late: list[LogChunk] = []
        for chunk in chunks:
            is_current = self._is_current(link, chunk.task_id, chunk.attempt)
            (own if is_current else late).append(chunk)
        had: set[tuple[str, int]] = set()
        ids = sorted({chunk.task_id for chunk in late})
        for task in await self._store.tasks.get_tasks(ids) if ids else ():
            rows = [(task.attempt, task.worker_id)]
            rows += [
                (a.attempt, a.worker_id)
                for a in await self._store.tasks.attempts(task.id)
            ]
            had |= {(task.id, attempt) for attempt, owner in rows if owner == link.id}
        return own + [chunk for chunk in late if (chunk.task_id, chunk.attempt) in had]

    def _is_due(self, link: WorkerLink, started: Started) -> bool:
        task = self._cluster.tasks.get(started[0])
        return (
            task is not None
            and task.attempt == started[1]
            and task.state is State.ASSIGNED
            and task.incarnation == link.worker.incarnation
        )

    async def _start(self, batch: Sequence[Sequence[Started]]) -> list[None]:
        flat = [s for rows in batch for s in rows]
        try:
            changed = await self._store.tasks.start_tasks(self._cluster.term, flat)
        except StoreUnavailable:
            self._cluster.doubt()
            raise
        self._signals.written.tell(TasksStarted(flat, changed))
        for task_id, attempt, at in flat:
            task = self._cluster.tasks.get(task_id)
            if task_id in changed and task is not None and task.attempt == attempt:
                state = advance(task.state, State.RUNNING)
                self._cluster.tasks[task_id] = replace(task, state=state, started_at=at)
        return [None] * len(batch)

    def _learn(self, link: WorkerLink, outcomes: Sequence[Outcome]) -> None:
        ran: dict[Kind, tuple[int, float]] = {}
        peaks: dict[Kind, float] = {}
        before = link.ran
        for outcome in outcomes:
            spec = self._cluster.tasks[outcome.task_id].spec
            if outcome.load_s:
                link.loads += 1
                link.load_s += outcome.load_s
            if spec.model is not None:
                self._counters.use_model(spec, outcome)
            if spec.model is not None and outcome.started_at is not None:
                link.shelf.use(spec.model, self._clock.now())
            if spec.job_type in OWN_TYPES:
                continue
            if outcome.kind is OutcomeKind.FAILED:
                link.failed += 1
            if outcome.kind is not OutcomeKind.COMPLETED:
                continue
            link.ran += 1
            link.busy_s += outcome.duration_s
            key = (spec.job_type, spec.model, self._cluster.units_of(spec))
            count, seconds = ran.get(key, (0, 0.0))
            ran[key] = (count + 1, seconds + outcome.duration_s)
            if outcome.memory_mb is not None:
                peaks[key] = max(outcome.memory_mb, peaks.get(key, 0.0))
        if link.ran > before:
            today = self._clock.now().date()
            link.ran_at = (today, link.ran_on(today) + link.ran - before)
        self._cluster.learn(link.id, ran, peaks)

    async def _next_order(self, link: WorkerLink) -> dict[str, str] | None:
        reply: asyncio.Future[dict[str, str] | None] = (
            asyncio.get_running_loop().create_future()
        )
        link.replies.append(reply)
        self._dispatch.ask(link)
        try:
            # No `LongPoll`: an order is given to this one caller, and given once; a
            # second look could find it gone. The limit is far longer than a plan and
            # its commit take. An order that comes later goes through the engine: the
            # reply is out of `replies` by then.
            return await asyncio.wait_for(reply, 5.0)
        except TimeoutError:
            return None
        finally:
            if reply in link.replies:
                link.replies.remove(reply)
