"""Accepts tasks: checks, plans in memory, one insert per batch, then the answer.

A caller is told "accepted" only after the commit.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from corral.core.tasks.job_type import OWN_TYPES
from corral.core.tasks.result_cache import same_as
from corral.core.tasks.task import State, Task, TaskSpec
from corral.errors import (
    BadRequest,
    CorralError,
    InvalidField,
    StoreUnavailable,
    UnknownTaskType,
    WorkerNotFound,
)
from corral.manager.access.secrets import NamedSecrets
from corral.manager.context import ManagerContext
from corral.manager.group_commit import GroupCommit
from corral.manager.output.objects import Objects
from corral.manager.signals import TasksInserted
from corral.manager.tasks.coalesce import Coalesce
from corral.manager.tasks.dispatch import Dispatch, ReadyOrder
from corral.manager.tasks.explain import expected_s
from corral.manager.tasks.model_fit import check_room
from corral.manager.tasks.payload_schema import check_any, check_payload
from corral.manager.tasks.settle import FOLLOWED_S, Settle, told_of
from corral.scheduler.events import OrderClosed, TasksGone, TasksQueued
from corral.scheduler.plan import PlannedOrder
from corral.store.base import Inserted, TaskStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Accepted:
    """One submitted task: stored now, or there before (`is_new` false)."""

    task: Task
    is_new: bool = True


Answer = Accepted | CorralError


@dataclass(slots=True)
class _Entry:
    task: Task
    needs: frozenset[str]
    answer: Answer | None = None


class Submit:
    def __init__(
        self,
        ctx: ManagerContext,
        dispatch: Dispatch,
        settle: Settle,
        secrets: NamedSecrets,
        coalesce: Coalesce,
        objects: Objects,
    ) -> None:
        self._cluster = ctx.cluster
        self._store: TaskStore = ctx.store.tasks
        self._dispatch = dispatch
        self._settle = settle
        self._clock = ctx.clock
        self._secrets = secrets
        self._coalesce = coalesce
        self._objects = objects
        self._results = coalesce.results
        self._signals = ctx.signals
        self._writes: GroupCommit[list[_Entry], None] = GroupCommit(self._commit)

    async def submit(self, specs: Sequence[TaskSpec]) -> list[Answer]:
        """Accept each task or say why not; one answer per spec, in order."""
        entries = await self._check(specs)
        checked = [e for e in entries if e.answer is None]
        marked = await self._answer_known(checked)
        try:
            await self._writes.put(checked)
        finally:
            self._coalesce.stored(marked)
        # What they depend on may have ended before, or since it was looked for.
        needs = {need for e in checked if _is_new(e.answer) for need in e.needs}
        if needs:
            await self._settle.resolve(needs)
            self._dispatch.kick()
        return [e.answer or BadRequest("the task was not stored") for e in entries]

    # checks ------------------------------------------------------------------
    async def _check(self, specs: Sequence[TaskSpec]) -> list[_Entry]:
        now = self._clock.now()
        outside = await self._look_up(specs)
        not_code = await self._objects.check_code(specs)
        known: set[str] = set()
        entries = []
        for spec in specs:
            seq = self._cluster.next_sequence()
            task = Task(spec=spec, state=State.QUEUED, created_at=now, seq=seq)
            entry = _Entry(task, frozenset())
            try:
                if spec.id in not_code:
                    raise not_code[spec.id]
                self._resolve(entry, outside, known)
                known.add(spec.id)
            except CorralError as e:
                entry.answer = e
            entries.append(entry)
        return entries

    async def _answer_known(self, entries: list[_Entry]) -> list[Task]:
        """Those whose result is known from before are stored as they ended; of the
        rest, those that ask what another is at wait for it. All that might have been.
        """
        marked = [e for e in entries if e.task.spec.options.question is not None]
        if not marked:
            return []
        known = await self._results.answer([e.task for e in marked])
        for entry in marked:
            task = known.get(entry.task.id)
            entry.task = task or self._coalesce.join(entry.task)
        return [e.task for e in marked]

    async def _look_up(self, specs: Sequence[TaskSpec]) -> dict[str, State]:
        """States of dependencies that are neither live nor part of this submit."""
        own = {s.id for s in specs}
        ids = {
            d
            for s in specs
            for d in s.depends_on
            if d not in own and d not in self._cluster.tasks
        }
        if not ids:
            return {}
        return {t.id: t.state for t in await self._store.get_tasks(sorted(ids))}

    def _resolve(
        self, entry: _Entry, outside: dict[str, State], known: set[str]
    ) -> None:
        spec = entry.task.spec
        job_type = self._cluster.job_types.get(spec.job_type)
        only_on = spec.options.only_on
        if only_on is not None and only_on not in self._cluster.workers:
            raise WorkerNotFound(f"no worker {only_on!r}", worker_id=only_on)
        # Who names the worker needs no type that says which one it is.
        if job_type is None and only_on is None:
            names = ", ".join(sorted(self._cluster.job_types)) or "none yet"
            raise UnknownTaskType(
                f"unknown task type '{spec.job_type}'; known: {names}. "
                "Launch a worker for it, or register it with 'corral job-type add'",
                task_type=spec.job_type,
            )
        if job_type is not None:
            check_payload(job_type, spec.payload)
        spec = self._secrets.check(spec, self._types_run(spec))
        if spec is not entry.task.spec:
            entry.task = replace(entry.task, spec=spec)
        check_room(self._cluster, self._cluster.catalogue.get(spec.model or ""), spec)
        if job_type is not None and job_type.cache_ttl_s is not None:
            spec = self._results.marked(job_type, spec)
            entry.task = replace(entry.task, spec=spec)
        needs = set()
        for need in spec.depends_on:
            if need in self._cluster.tasks or need in known:
                needs.add(need)
            elif need not in outside:
                raise InvalidField(
                    f"depends_on names an unknown task {need!r}", field="depends_on"
                )
            elif outside[need] is not State.COMPLETED:
                needs.add(need)
        entry.needs = frozenset(needs)

    def _types_run(self, spec: TaskSpec) -> Sequence[str]:
        """The job types whose rules hold for a task.

        Who names a worker may call the task as they like (the job API needs no type
        there), but gets what that worker serves, and so by the rules of that.

        Raises:
            InvalidField: nothing it serves takes such a payload.
        """
        link = self._cluster.workers.get(spec.options.only_on or "")
        if link is None or spec.job_type in OWN_TYPES:
            return (spec.job_type,)
        types = link.worker.spec.types_run(spec.job_type)
        if spec.job_type not in types:
            served = [self._cluster.job_types.get(name) for name in types]
            check_any(list(filter(None, served)), spec.payload)
        return types

    # the commit --------------------------------------------------------------
    # If we die before the insert is through there is no task, and nobody was told that
    # there is. After it, and before the order is sent, the row says `assigned`: the
    # next manager opens that order again, and gives it out anew when beats lack it.
    async def _commit(self, batch: Sequence[list[_Entry]]) -> list[None]:
        entries = self._without_repeats([e for group in batch for e in group])
        waiting = [e for e in entries if not e.task.is_terminal]
        direct, later = self._plan(waiting)
        assigned = {w.task_id: order.worker_id for order in direct for w in order.tasks}
        now = self._clock.now()
        rows = []
        for entry in entries:
            link = self._cluster.link(assigned.get(entry.task.id, ""))
            if link is not None:
                entry.task = self._cluster.assign(entry.task, link, now)
            rows.append(entry.task)
        new = {task.id for task in rows}
        # The scheduler has them, the store not yet: until it has, no other cycle may
        # place them, for it would find no row.
        self._cluster.unstored.update(new)
        try:
            with self._signals.writing() as tell:
                inserted = await self._store.insert_tasks(self._cluster.term, rows)
                tell(TasksInserted(rows, inserted))
        except BaseException as e:
            self._undo(waiting, [*direct, *later])
            # Refused is refused; of anything else nobody knows whether it is written.
            is_refused = isinstance(e, CorralError) and not isinstance(
                e, StoreUnavailable
            )
            self._cluster.doubt(not is_refused)
            self._dispatch.let_go([*direct, *later])
            self._dispatch.kick()
            raise
        finally:
            self._cluster.unstored.difference_update(new)
        self._answer(entries, inserted)
        try:
            await self._send_direct(direct, {t.id: t for t in rows})
        finally:
            self._dispatch.let_go(direct)
            self._dispatch.later(later)
        return [None] * len(batch)

    def _without_repeats(self, entries: list[_Entry]) -> list[_Entry]:
        # Not earlier: since the checks another submit may have brought the same id.
        seen: dict[str, _Entry] = {}
        for entry in entries:
            live = self._cluster.tasks.get(entry.task.id)
            if live is not None:
                entry.answer = Accepted(live, is_new=False)
            elif (first := seen.get(entry.task.id)) is not None:
                entry.answer = Accepted(first.task, is_new=False)
            else:
                seen[entry.task.id] = entry
        return list(seen.values())

    def _plan(
        self, entries: list[_Entry]
    ) -> tuple[list[PlannedOrder], list[PlannedOrder]]:
        """Plan new tasks before they are stored, so that one commit does for both."""
        waiting = []
        for entry in entries:
            task = self._cluster.tasks[entry.task.id] = entry.task
            needs = entry.needs
            if task.spec.options.same_as is not None:
                needs |= {same_as(task.spec.options.same_as)}
            waiting.append(self._cluster.waiting(task, needs))
        self._cluster.scheduler.apply(TasksQueued(tuple(waiting)))
        new = {e.task.id for e in entries}
        direct: list[PlannedOrder] = []
        later: list[PlannedOrder] = []
        for order in self._dispatch.plan().orders:
            is_direct = all(w.task_id in new for w in order.tasks)
            (direct if is_direct else later).append(order)
        return direct, later

    def _undo(self, entries: list[_Entry], orders: list[PlannedOrder]) -> None:
        ids = tuple(e.task.id for e in entries)
        self._cluster.scheduler.apply(TasksGone(ids))
        for task_id in ids:
            self._cluster.end(task_id)
        for order in orders:
            rest = tuple(w for w in order.tasks if w.task_id in self._cluster.tasks)
            self._cluster.scheduler.apply(TasksQueued(rest))
            self._cluster.scheduler.apply(OrderClosed(order.worker_id))

    def _tell(self, task: Task) -> None:
        expects_s = expected_s(self._cluster, task)
        is_loud = expects_s is None or expects_s >= FOLLOWED_S
        level = logging.INFO if is_loud else logging.DEBUG
        log.log(level, "task_submitted", extra=told_of(task.spec))

    def _answer(self, entries: list[_Entry], inserted: Inserted) -> None:
        says_all = log.isEnabledFor(logging.DEBUG)
        accepted: list[Task] = []
        answered: list[tuple[Task, State]] = []
        for entry in entries:
            task_id = entry.task.id
            if task_id in inserted.created:
                accepted.append(entry.task)
                if says_all or len(entries) == 1:
                    self._tell(entry.task)
                # A task with an id of the caller's own may have ended meanwhile.
                if (task := self._cluster.tasks.get(task_id)) is not None:
                    self._cluster.keep(task)
                elif entry.task.is_terminal:
                    # As if it had just ended: who waits for it is answered.
                    self._cluster.end(task_id)
                    answered.append((entry.task, entry.task.state))
                entry.answer = Accepted(entry.task)
                continue
            if not entry.task.is_terminal:
                self._cluster.scheduler.apply(TasksGone((task_id,)))
                self._cluster.end(task_id)
            if (known := inserted.existing.get(task_id)) is not None:
                entry.answer = Accepted(known, is_new=False)
                if known.id == task_id and not known.is_terminal:
                    self._cluster.doubt()
            else:
                complaint = inserted.rejected.get(task_id, "it could not be stored")
                entry.answer = InvalidField(
                    f"the task cannot be stored: {complaint}", field="parameters"
                )
        self._signals.accepted.tell(accepted)
        self._signals.ended.tell(answered)

    async def _send_direct(
        self, orders: list[PlannedOrder], rows: dict[str, Task]
    ) -> None:
        for order in orders:
            # Worker and tasks may have gone during the insert.
            link = self._cluster.link(order.worker_id)
            tasks = tuple(
                rows[w.task_id] for w in order.tasks if w.task_id in self._cluster.tasks
            )
            if link is None or not tasks:
                self._cluster.scheduler.apply(OrderClosed(order.worker_id))
                continue
            given = (order.unload, order.cards, order.lead)
            await self._dispatch.send(ReadyOrder(link, tasks, {}, *given))


def _is_new(answer: Answer | None) -> bool:
    return isinstance(answer, Accepted) and answer.is_new
