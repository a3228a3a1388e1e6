"""Schedules: submits their tasks when they are due, each planned run exactly once.

A run is first stored as a task whose key follows from schedule and planned time, then
the schedule moves on. Whoever dies in between begins again with the same time, finds
the task there, and moves on: nothing is lost and nothing is run twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from corral.core.tasks.options import Trace
from corral.core.tasks.schedule import (
    MOST_MISSED,
    MissedPolicy,
    OverlapPolicy,
    Schedule,
    moment_text,
)
from corral.core.tasks.task import Task, TaskSpec
from corral.errors import Conflict, CorralError, NotFound, UnknownTaskType
from corral.manager.access.keys import Keys
from corral.manager.clock import new_id, new_task_id
from corral.manager.cluster.waiters import rest
from corral.manager.context import ManagerContext
from corral.manager.cron import Cron
from corral.manager.signals import NameChanged
from corral.manager.tasks import Tasks
from corral.manager.tasks.payload_schema import check_payload
from corral.manager.tasks.settle import told_of
from corral.manager.tasks.submit import Answer
from corral.store.base import Event, QueueStore

log = logging.getLogger(__name__)
MOST_SCHEDULES = 10_000
LOOK_S = 60.0
"""How long a rest may be at most: the clock on the wall may be set meanwhile."""


@dataclass(frozen=True, slots=True)
class _DueRun:
    """What one schedule does now: tasks to submit, and a word on those left out."""

    schedule: Schedule
    last: datetime
    specs: tuple[TaskSpec, ...]
    note: str | None


class Schedules:
    """`load` once, then `step` again and again."""

    def __init__(self, ctx: ManagerContext, tasks: Tasks, keys: Keys) -> None:
        self._cluster = ctx.cluster
        self._keys = keys
        self._record = ctx.record
        self._store: QueueStore = ctx.store.queues
        self._signals = ctx.signals
        self._tasks = tasks
        self._clock = ctx.clock
        self._rows: dict[str, Schedule] = {}
        self._changed = asyncio.Event()
        # A schedule that is changed while it fires would lose one of the two.
        self._lock = asyncio.Lock()

    async def load(self) -> None:
        self._rows = {row.name: row for row in await self._store.schedules()}

    # what users ask for --------------------------------------------------------
    def all(self) -> list[Schedule]:
        return [self._rows[name] for name in sorted(self._rows)]

    def get(self, name: str) -> Schedule:
        """Raises NotFound when there is none of that name."""
        if (found := self._rows.get(name)) is None:
            raise NotFound(f"no schedule {name[:128]!r}", schedule=name[:128])
        return found

    def upcoming(self, schedule: Schedule, most: int) -> list[datetime]:
        """Its next times; none while it is paused."""
        at, found = schedule.next_at, list[datetime]()
        while at is not None and len(found) < most:
            found.append(at)
            at = _cron(schedule).after(at)
        return found

    async def add(self, schedule: Schedule) -> Schedule:
        """Begin with a schedule; one without a name is given one.

        Raises:
            InvalidField, UnknownTaskType: it could never run.
            Conflict: there is one of that name.
        """
        self._check_task(schedule.task)
        now = self._clock.now()
        async with self._lock:
            name = schedule.name or new_id("s")
            if name in self._rows:
                raise Conflict(f"there is a schedule {name!r} already", schedule=name)
            if len(self._rows) >= MOST_SCHEDULES:
                raise Conflict(f"there are {MOST_SCHEDULES} schedules already")
            made = replace(schedule, name=name, created_at=now)
            return await self._save(_resumed(made, now))

    def _check_task(self, spec: TaskSpec) -> None:
        job_type = self._cluster.job_types.get(spec.job_type)
        if job_type is None:
            names = ", ".join(sorted(self._cluster.job_types)) or "none yet"
            raise UnknownTaskType(
                f"unknown task type '{spec.job_type}'; known: {names}",
                task_type=spec.job_type,
            )
        check_payload(job_type, spec.payload)

    async def pause(self, name: str) -> Schedule:
        async with self._lock:
            return await self._save(replace(self.get(name), next_at=None))

    async def resume(self, name: str, owner: str = "") -> Schedule:
        """Go on from now: what a paused schedule did not run was not missed.

        One whose key is void becomes that of the `owner` who resumes it.
        """
        async with self._lock:
            found = self.get(name)
            if not found.is_paused:
                return found
            if owner and self._keys.is_void(found.task.owner):
                found = replace(found, task=replace(found.task, owner=owner), note=None)
            return await self._save(_resumed(found, self._clock.now()))

    async def remove(self, name: str) -> None:
        """The tasks it has submitted stay."""
        async with self._lock:
            self.get(name)
            await self._store.delete_schedule(name)
            self._signals.written.tell(
                NameChanged("schedule_changed", name, is_removed=True)
            )
            self._rows.pop(name, None)

    async def run_now(self, name: str, trace: Trace, key: str | None = None) -> Task:
        """One run beside the plan; the same key again makes no second one.

        Raises:
            Conflict: runs may not overlap, and one lives; or its key is void.
        """
        async with self._lock:
            found = self.get(name)
            if self._keys.is_void(found.task.owner):
                raise Conflict(_void_words(found), schedule=name)
            spec = found.extra_spec(
                new_task_id(), key or new_task_id(), self._clock.now()
            )
            spec = _traced(spec, trace)
            if found.overlap is OverlapPolicy.SKIP and self._is_other(name, spec):
                raise Conflict(
                    f"a run of {name!r} is under way, and its runs may not overlap",
                    schedule=name,
                )
            answer = (await self._tasks.submit([spec]))[0]
            if isinstance(answer, CorralError):
                raise answer
            await self._save(replace(found, last_task_id=answer.task.id))
            return answer.task

    async def _save(self, schedule: Schedule) -> Schedule:
        await self._store.save_schedule(schedule)
        self._signals.written.tell(NameChanged("schedule_changed", schedule.name))
        self._rows[schedule.name] = schedule
        self._changed.set()
        return schedule

    # the loop ------------------------------------------------------------------
    async def step(self) -> None:
        """Rest until something is due, and run it."""
        while (rest_s := self._rest_s()) is None or rest_s > 0:
            self._changed.clear()
            limit_s = None if rest_s is None else min(rest_s, LOOK_S)
            await rest(self._changed, limit_s)
        await self.fire()

    def _rest_s(self) -> float | None:
        times = [row.next_at for row in self._rows.values() if row.next_at]
        if not times:
            return None
        return (min(times) - self._clock.now()).total_seconds()

    async def fire(self) -> None:
        """Run all that is due now: one submit and one save, however many they are."""
        async with self._lock:
            await self._stop_void()
            now = self._clock.now()
            due = [r for r in self._rows.values() if r.next_at and r.next_at <= now]
            if not due:
                return
            is_asked = any(row.overlap is OverlapPolicy.SKIP for row in due)
            living = self._living() if is_asked else {}
            firings = [_firing(row, now, living.get(row.name, set())) for row in due]
            specs = [spec for firing in firings for spec in firing.specs]
            answers = iter(await self._tasks.submit(specs) if specs else ())
            await self._move_on(
                [(firing, [next(answers) for _ in firing.specs]) for firing in firings],
                now,
            )

    async def _stop_void(self) -> None:
        """Those that are due and whose key is revoked or over run no more."""
        now = self._clock.now()
        due = [r for r in self._rows.values() if r.next_at and r.next_at <= now]
        for row in due:
            if not self._keys.is_void(row.task.owner):
                continue
            words = _void_words(row)
            log.warning("schedule %s: %s", row.name, words)
            await self._save(replace(row, next_at=None, note=words))
            title = f"schedule {row.name} is stopped: {words}"
            data = {"schedule": row.name, "owner": row.task.owner}
            event = Event("schedule_stopped", title, "warning", data=data, at=now)
            await self._record([event])

    async def _move_on(
        self, fired: Sequence[tuple[_DueRun, list[Answer]]], now: datetime
    ) -> None:
        moves = []
        for firing, answers in fired:
            planned = firing.schedule.next_at
            assert planned is not None
            moves.append((planned, _moved(firing, answers, now)))
        moved = await self._store.advance_schedules(self._cluster.term, moves)
        for _, row in moves:
            if row.name in moved:
                self._rows[row.name] = row
        if len(moved) < len(moves):
            await self.load()

    def _is_other(self, name: str, spec: TaskSpec) -> bool:
        """Does another run than this one live?"""
        key = spec.idempotency_key
        return any(
            task.spec.options.schedule == name and task.spec.idempotency_key != key
            for task in self._cluster.tasks.values()
        )

    def _living(self) -> dict[str, set[str]]:
        """Of which schedules runs live, and what those were planned for."""
        found: dict[str, set[str]] = {}
        for task in self._cluster.tasks.values():
            options = task.spec.options
            if options.schedule is not None:
                runs = found.setdefault(options.schedule, set())
                runs.add(options.scheduled_at or "")
        return found


def _void_words(schedule: Schedule) -> str:
    return (
        f"the key of {schedule.task.owner} it was made with is revoked or over; "
        f"'corral schedule resume {schedule.name}' makes it yours"
    )


def _resumed(schedule: Schedule, now: datetime) -> Schedule:
    next_at = _cron(schedule).after(now)
    if next_at is None:
        raise Conflict(f"{schedule.cron!r} has no time to come", field="cron")
    return replace(schedule, next_at=next_at)


def _cron(schedule: Schedule) -> Cron:
    return Cron(schedule.cron, schedule.timezone)


def _firing(schedule: Schedule, now: datetime, living: set[str]) -> _DueRun:
    first = schedule.next_at
    assert first is not None
    most = MOST_MISSED if schedule.missed is MissedPolicy.ALL else 1
    # A line that was changed by hand may not know its own next time any more.
    due = _cron(schedule).due(first, now, most) or [first]
    runs = schedule.to_run(due, now)
    last, note = moment_text(due[-1]), None
    # The run itself may be there already, when a manager died before it moved on.
    if runs and schedule.overlap is OverlapPolicy.SKIP and living - {last}:
        runs, note = (), f"the run of {last} was left out: one before it still lives"
    elif not runs:
        note = f"runs up to {last} were missed and left out"
    specs = tuple(
        _traced(schedule.spec(new_task_id(), at, now), Trace(new_id("schedule")))
        for at in runs
    )
    return _DueRun(schedule, due[-1], specs, note)


def _traced(spec: TaskSpec, trace: Trace) -> TaskSpec:
    return replace(spec, options=trace.noted(spec.options))


def _moved(firing: _DueRun, answers: Sequence[Answer], now: datetime) -> Schedule:
    """The schedule after its runs, with its next time."""
    schedule, note = firing.schedule, firing.note
    last_at, last_id = schedule.last_at, schedule.last_task_id
    for spec, answer in zip(firing.specs, answers, strict=True):
        told = {"schedule": schedule.name}
        if isinstance(answer, CorralError):
            note = f"its task was refused: {answer.message}"
            extra = told | told_of(spec)
            log.warning("schedule %s: %s", schedule.name, note, extra=extra)
        else:
            last_at, last_id = firing.last, answer.task.id
            log.info("schedule_fired", extra=told | told_of(answer.task.spec))
    # Never the same time again, even when the clock was set back.
    next_at = _cron(schedule).after(max(now, firing.last))
    return replace(
        schedule, next_at=next_at, last_at=last_at, last_task_id=last_id, note=note
    )
