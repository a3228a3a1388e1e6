"""Takes workers' reports: outcomes into the record, the next order into the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec
from msgspec import UNSET

from corral.core.tasks.job_type import OWN_TYPES
from corral.core.tasks.outcome import Outcome, OutcomeKind
from corral.core.tasks.task import State, TaskError, advance
from corral.errors import Conflict, InvalidField, StoreUnavailable
from corral.manager.cluster.state import Kind, WorkerLink
from corral.manager.cluster.streams import AttemptPieces
from corral.manager.context import ManagerContext
from corral.manager.group_commit import GroupCommit
from corral.manager.signals import TasksStarted
from corral.manager.tasks.cancel import stopped
from corral.manager.tasks.dispatch import Dispatch
from corral.manager.tasks.settle import Settle
from corral.store.base import LogChunk
from corral.wire.orders import AttemptOutcome, LogLines, ReportAnswer, WorkerReport

Started = tuple[str, int, datetime]
_decode_lines = msgspec.json.Decoder(list[tuple[float, str, str]]).decode


@dataclass(frozen=True, slots=True)
class ReportedWork:
    """What a report says of attempts, as our values and by our clock."""

    outcomes: Sequence[Outcome]
    started: Sequence[Started]
    logs: Sequence[LogChunk]
    output: Sequence[AttemptPieces]

    @classmethod
    def of(cls, said: WorkerReport, lead_s: float) -> ReportedWork:
        """From a worker whose clock is `lead_s` ahead of ours.

        Raises:
            InvalidField: what cannot be read of it.
        """
        return cls(
            [_outcome(each, lead_s) for each in said.outcomes],
            [(t, a, _moment(at - lead_s)) for t, a, at in said.started],
            [_log(each, lead_s) for each in said.logs],
            [
                AttemptPieces(*x.key, max(x.first, 1), list(map(_one_line, x.values)))
                for x in said.output or ()
            ],
        )


def _outcome(said: AttemptOutcome, lead_s: float) -> Outcome:
    error = said.error
    try:
        kind = OutcomeKind(said.kind)
        result = None if said.result is UNSET else bytes(said.result).decode()
    except ValueError as e:
        raise InvalidField(str(e), field="outcomes") from e
    return Outcome(
        said.task_id,
        said.attempt,
        kind,
        result,
        TaskError(error.kind, error.message, error.traceback) if error else None,
        _moment(said.started_at - lead_s) if said.started_at else None,
        said.duration_s,
        is_final=error is not None and error.is_final,
        load_s=said.load_s,
        memory_mb=said.memory_mb,
    )


def _log(said: LogLines, lead_s: float) -> LogChunk:
    try:
        lines = _decode_lines(said.lines)
    except msgspec.DecodeError as e:
        raise InvalidField(str(e), field="logs") from e
    if lead_s:
        lines = [(at - lead_s, stream, text) for at, stream, text in lines]
    return LogChunk(*said.key, said.seq, msgspec.json.encode(lines).decode())


def _one_line(value: msgspec.Raw) -> bytes:
    """As it may stand in a stream of events, where lines have a meaning."""
    text = bytes(value)
    if b"\n" in text or b"\r" in text:
        return msgspec.json.encode(msgspec.json.decode(text))
    return text


def _moment(epoch_s: float) -> datetime:
    try:
        return datetime.fromtimestamp(epoch_s, UTC)
    except (ValueError, OverflowError, OSError) as e:
        raise InvalidField(f"{epoch_s} is no time: {e}", field="started_at") from e


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

    async def report(
        self, link: WorkerLink, report: WorkerReport, work: ReportedWork
    ) -> ReportAnswer:
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
            result = await self._carry_out(link, report, work)
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
    async def _carry_out(
        self, link: WorkerLink, report: WorkerReport, work: ReportedWork
    ) -> ReportAnswer:
        for pieces in work.output:
            if self._is_current(link, pieces.task_id, pieces.attempt):
                self._cluster.streams.add(pieces)
                self._cluster.followers.ring(pieces.task_id)
        if work.logs:
            own = await self._own_logs(link, work.logs)
            await self._store.output.add_logs(own)
            for task_id in {chunk.task_id for chunk in own}:
                self._cluster.followers.ring(task_id)
        outcomes = [
            o for o in work.outcomes if self._is_current(link, o.task_id, o.attempt)
        ]
        ended = {(o.task_id, o.attempt) for o in work.outcomes}
        if link.lingering and stopped(self._cluster, link, ended):
            self._dispatch.kick()
        # No await since `outcomes` were found current: their tasks must be there.
        self._learn(link, outcomes)
        # Ends before starts: what began and ended since the last report is no longer
        # due, and needs no write that says it runs.
        await self._settle.settle(outcomes)
        await self.start(link, work.started)
        for task_id, attempt, fraction, message in report.progress:
            if self._is_current(link, task_id, attempt):
                self._cluster.progress[task_id] = (fraction, message)
                self._cluster.followers.ring(task_id)
        order = await self._next_order(link) if report.wants_order else None
        if outcomes and not report.wants_order:
            self._dispatch.kick()
        execs = list(link.execs.values())
        return ReportAnswer(order, list(link.drops), execs or UNSET)

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
