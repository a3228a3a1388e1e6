"""Writes of tasks in memory: every call runs without a pause, so it is atomic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from corral.core.tasks.report import OutcomeKind
from corral.core.tasks.retry import Settlement
from corral.core.tasks.task import LIVE, Attempt, State, Task, advance
from corral.store.base import Inserted, Placement
from corral.store.batch import clean_error, unstorable
from corral.store.memory_schedule import MemorySchedules
from corral.store.text import is_storable

_INTEGER = range(-(2**31), 2**31)


class MemoryWrite(MemorySchedules):
    async def insert_tasks(self, term: int, tasks: Sequence[Task]) -> Inserted:
        if not tasks:
            return Inserted({})
        self._check_term(term)
        created: dict[str, int] = {}
        existing: dict[str, Task] = {}
        rejected: dict[str, str] = {}
        for task in tasks:
            known = self._known(task)
            if complaint := _complaint(task):
                rejected[task.id] = complaint
            elif known is None:
                created[task.id] = self._insert(task)
            elif known.id not in created or known.id != task.id:
                existing[task.id] = known
        at = max(task.created_at for task in tasks)
        states = {"states": [str(self._tasks[id_].state) for id_ in created]}
        self._record("submitted", at, created, states)
        self._record_answered([self._tasks[id_] for id_ in created])
        return Inserted(created, existing, rejected)

    def _record_answered(self, tasks: Sequence[Task]) -> None:
        """Those that were stored with their result have ended as well."""
        ended = [task for task in tasks if task.finished_at is not None]
        if ended:
            data = {
                "attempts": [task.attempt for task in ended],
                "states": [str(task.state) for task in ended],
            }
            at = max(task.finished_at for task in ended if task.finished_at)
            self._record("settled", at, [task.id for task in ended], data)

    def _known(self, task: Task) -> Task | None:
        key = task.spec.idempotency_key
        holder = None if key is None else self._keyed.get((task.spec.owner, key))
        return self._tasks.get(task.id) or self._tasks.get(holder or "")

    def _insert(self, task: Task) -> int:
        self._seq += 1
        self._tasks[task.id] = replace(task, seq=self._seq)
        if task.spec.idempotency_key is not None:
            self._keyed[task.spec.owner, task.spec.idempotency_key] = task.id
        self._note(task)
        return self._seq

    async def place_tasks(
        self, term: int, placements: Sequence[Placement], now: datetime
    ) -> Mapping[str, str]:
        if not placements:
            return {}
        self._check_term(term)
        placed: dict[str, str] = {}
        for p in placements:
            task = self._current(p.task_id, p.attempt, State.QUEUED)
            if task is not None:
                self._tasks[task.id] = replace(
                    task,
                    state=advance(task.state, State.ASSIGNED),
                    worker_id=p.worker_id,
                    incarnation=p.incarnation,
                    node_id=p.node_id,
                    assigned_at=now,
                )
                placed[task.id] = task.spec.payload
        data = {
            "attempts": [self._tasks[id_].attempt for id_ in placed],
            "workers": [self._tasks[id_].worker_id for id_ in placed],
        }
        self._record("assigned", now, placed, data)
        return placed

    def _current(self, task_id: str, attempt: int, *states: State) -> Task | None:
        task = self._tasks.get(task_id)
        if task is None or task.attempt != attempt or task.state not in states:
            return None
        return task

    async def start_tasks(
        self, term: int, started: Sequence[tuple[str, int, datetime]]
    ) -> set[str]:
        if not started:
            return set()
        self._check_term(term)
        changed = set()
        for task_id, attempt, at in started:
            task = self._current(task_id, attempt, State.ASSIGNED)
            if task is not None:
                self._tasks[task_id] = replace(
                    task, state=advance(task.state, State.RUNNING), started_at=at
                )
                changed.add(task_id)
        return changed

    async def settle_tasks(
        self, term: int, settlements: Sequence[Settlement]
    ) -> set[str]:
        if not settlements:
            return set()
        self._check_term(term)
        ended: list[Settlement] = []
        for settlement in settlements:
            if not is_storable(settlement.result or ""):
                settlement = unstorable(settlement, "it has no text form")
            task = self._current(settlement.task_id, settlement.attempt, *LIVE)
            if task is not None:
                self._settle(task, settlement)
                ended.append(settlement)
        data = {
            "attempts": [s.attempt for s in ended],
            "states": [str(s.state) for s in ended],
        }
        at = max(s.finished_at for s in settlements)
        ids = [s.task_id for s in ended]
        self._record("settled", at, ids, data)
        return set(ids)

    def _settle(self, task: Task, s: Settlement) -> None:
        if s.outcome is not OutcomeKind.COMPLETED:
            self._keep(_attempt_of(task, s))
        counted = replace(task, state=s.state, tries=s.tries, losses=s.losses)
        if s.state is State.QUEUED:
            counted = replace(
                _unplaced(counted), spec=replace(task.spec, run_after=s.run_after)
            )
        else:
            counted = replace(
                counted,
                started_at=s.started_at or task.started_at,
                finished_at=s.finished_at,
            )
        self._tasks[task.id] = replace(
            counted,
            result=s.result,
            error=clean_error(s.error),
            dead_letter=s.dead_letter,
        )

    def _keep(self, attempt: Attempt) -> None:
        self._attempts.setdefault(attempt.task_id, {})[attempt.attempt] = attempt

    async def discard_dead_letter(self, term: int, task_id: str) -> bool:
        self._check_term(term)
        task = self._tasks.get(task_id)
        if task is None or task.dead_letter is None:
            return False
        self._tasks[task_id] = replace(task, dead_letter=None)
        return True

    async def requeue_task(self, term: int, task_id: str, now: datetime) -> Task | None:
        self._check_term(term)
        task = self._tasks.get(task_id)
        if task is None or not task.is_terminal:
            return None
        if task.state is State.COMPLETED:
            self._keep(_attempt_of(task, None))
        deadline = task.spec.deadline
        spec = replace(
            task.spec,
            run_after=None,
            deadline=deadline if deadline and deadline > now else None,
        )
        again = replace(
            _unplaced(task),
            spec=spec,
            state=advance(task.state, State.QUEUED),
            run=task.run + 1,
            tries=0,
            losses=0,
            result=None,
            error=None,
            dead_letter=None,
        )
        self._tasks[task_id] = again
        self._note(again)
        data = {"attempts": [again.attempt]}
        self._record("requeued", now, [task_id], data)
        return again


def _unplaced(task: Task) -> Task:
    """The next attempt, nobody's yet."""
    return replace(
        task,
        attempt=task.attempt + 1,
        worker_id=None,
        incarnation=None,
        node_id=None,
        assigned_at=None,
        started_at=None,
        finished_at=None,
    )


def _attempt_of(task: Task, s: Settlement | None) -> Attempt:
    """The history row of an attempt, from the task as it was and how it ended."""
    finished_at = s.finished_at if s else task.finished_at
    assert finished_at is not None
    return Attempt(
        task_id=task.id,
        run=task.run,
        attempt=task.attempt,
        outcome=str(s.outcome if s else OutcomeKind.COMPLETED),
        worker_id=task.worker_id,
        node_id=task.node_id,
        started_at=(s.started_at if s else None) or task.started_at,
        finished_at=finished_at,
        error=clean_error(s.error) if s else None,
    )


def _complaint(task: Task) -> str | None:
    """Why PostgreSQL would refuse this row."""
    spec = task.spec
    texts = (
        spec.id,
        spec.job_type,
        spec.payload,
        spec.model,
        spec.idempotency_key,
        spec.owner,
        task.worker_id,
        *spec.depends_on,
    )
    if not all(is_storable(text) for text in texts if text is not None):
        return "a text holds a character that cannot be stored"
    if not all(number in _INTEGER for number in (spec.priority, spec.retries)):
        return "a number is out of range"
    return None
