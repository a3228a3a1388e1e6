"""Writes of tasks in memory: every call runs without a pause, so it is atomic."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from corral.core.tasks.outcome import OutcomeKind, Settlement
from corral.core.tasks.task import LIVE, Attempt, State, Task, advance
from corral.store.base import (
    CHECKPOINT,
    Inserted,
    KeptTree,
    LogChunk,
    Placement,
    TaskFilter,
    TaskPage,
)
from corral.store.postgres.tasks.columns import clean_error
from corral.store.postgres.tasks.tasks import (
    read_cursor,
    unstorable,
    write_cursor,
)
from corral.store.text import clean, is_storable
from tests.twins.store_state import MemoryTables

_DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_INTEGER = range(-(2**31), 2**31)


@dataclass(frozen=True, slots=True)
class MemoryTasks:
    _tables: MemoryTables

    async def insert_tasks(self, term: int, tasks: Sequence[Task]) -> Inserted:
        if not tasks:
            return Inserted({})
        self._tables.check_term(term)
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
        states = {"states": [str(self._tables.tasks[id_].state) for id_ in created]}
        self._tables.record("submitted", at, created, states)
        self._record_answered([self._tables.tasks[id_] for id_ in created])
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
            self._tables.record("settled", at, [task.id for task in ended], data)

    def _known(self, task: Task) -> Task | None:
        key = task.spec.idempotency_key
        holder = None if key is None else self._tables.keyed.get((task.spec.owner, key))
        return self._tables.tasks.get(task.id) or self._tables.tasks.get(holder or "")

    def _insert(self, task: Task) -> int:
        self._tables.seq += 1
        self._tables.tasks[task.id] = replace(task, seq=self._tables.seq)
        if task.spec.idempotency_key is not None:
            self._tables.keyed[task.spec.owner, task.spec.idempotency_key] = task.id
        self._tables.note(task)
        return self._tables.seq

    async def place_tasks(
        self, term: int, placements: Sequence[Placement], now: datetime
    ) -> Mapping[str, str]:
        if not placements:
            return {}
        self._tables.check_term(term)
        placed: dict[str, str] = {}
        for p in placements:
            task = self._current(p.task_id, p.attempt, State.QUEUED)
            if task is not None:
                self._tables.tasks[task.id] = replace(
                    task,
                    state=advance(task.state, State.ASSIGNED),
                    worker_id=p.worker_id,
                    incarnation=p.incarnation,
                    node_id=p.node_id,
                    assigned_at=now,
                )
                placed[task.id] = task.spec.payload
        data = {
            "attempts": [self._tables.tasks[id_].attempt for id_ in placed],
            "workers": [self._tables.tasks[id_].worker_id for id_ in placed],
        }
        self._tables.record("assigned", now, placed, data)
        return placed

    def _current(self, task_id: str, attempt: int, *states: State) -> Task | None:
        task = self._tables.tasks.get(task_id)
        if task is None or task.attempt != attempt or task.state not in states:
            return None
        return task

    async def start_tasks(
        self, term: int, started: Sequence[tuple[str, int, datetime]]
    ) -> set[str]:
        if not started:
            return set()
        self._tables.check_term(term)
        changed = set()
        for task_id, attempt, at in started:
            task = self._current(task_id, attempt, State.ASSIGNED)
            if task is not None:
                self._tables.tasks[task_id] = replace(
                    task, state=advance(task.state, State.RUNNING), started_at=at
                )
                changed.add(task_id)
        return changed

    async def settle_tasks(
        self, term: int, settlements: Sequence[Settlement]
    ) -> set[str]:
        if not settlements:
            return set()
        self._tables.check_term(term)
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
        self._tables.record("settled", at, ids, data)
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
        self._tables.tasks[task.id] = replace(
            counted,
            result=s.result,
            error=clean_error(s.error),
            dead_letter=s.dead_letter,
        )

    def _keep(self, attempt: Attempt) -> None:
        self._tables.attempts.setdefault(attempt.task_id, {})[attempt.attempt] = attempt

    async def discard_dead_letter(self, term: int, task_id: str) -> bool:
        self._tables.check_term(term)
        task = self._tables.tasks.get(task_id)
        if task is None or task.dead_letter is None:
            return False
        self._tables.tasks[task_id] = replace(task, dead_letter=None)
        return True

    async def requeue_task(self, term: int, task_id: str, now: datetime) -> Task | None:
        self._tables.check_term(term)
        task = self._tables.tasks.get(task_id)
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
        self._tables.tasks[task_id] = again
        self._tables.note(again)
        data = {"attempts": [again.attempt]}
        self._tables.record("requeued", now, [task_id], data)
        return again

    async def get_task(self, task_id: str) -> Task | None:
        return self._tables.tasks.get(task_id)

    async def get_tasks(self, task_ids: Sequence[str]) -> Sequence[Task]:
        return [
            self._tables.tasks[id_]
            for id_ in set(task_ids)
            if id_ in self._tables.tasks
        ]

    async def list_tasks(
        self, where: TaskFilter, limit: int, offset: int = 0, cursor: str | None = None
    ) -> TaskPage:
        chosen = [task for task in self._tables.tasks.values() if _matches(task, where)]
        total = len(chosen)
        chosen.sort(key=lambda task: -task.seq)
        if cursor is not None:
            last = read_cursor(cursor)
            chosen = [task for task in chosen if task.seq < last]
        chosen = chosen[offset:]
        page = tuple(chosen[:limit])
        more = len(chosen) > limit and page
        return TaskPage(page, total, write_cursor(page[-1].seq) if more else None)

    async def count_tasks(self) -> Mapping[State, int]:
        return Counter(task.state for task in self._tables.tasks.values())

    async def live_tasks(self) -> Sequence[Task]:
        live = (task for task in self._tables.tasks.values() if not task.is_terminal)
        return [
            replace(task, spec=replace(task.spec, payload=""))
            for task in sorted(live, key=lambda task: task.seq)
        ]

    async def attempts(self, task_id: str) -> Sequence[Attempt]:
        kept = self._tables.attempts.get(task_id, {})
        return [kept[attempt] for attempt in sorted(kept)]


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


def _matches(task: Task, where: TaskFilter) -> bool:
    spec = task.spec
    return (
        (not where.states or task.state in where.states)
        and where.job_type in (None, spec.job_type)
        and where.worker_id in (None, task.worker_id)
        and where.owner in (None, spec.owner)
        and where.labels.items() <= spec.labels.items()
        and where.request_id in (None, spec.options.request_id)
        and where.schedule in (None, spec.options.schedule)
        and where.dead_letter in (None, task.dead_letter is not None)
        and where.model in (None, spec.model)
        and (not where.text or _has(task, where.text.lower()))
    )


def _has(task: Task, text: str) -> bool:
    spec, error = task.spec, task.error.message if task.error else None
    told = (spec.id, spec.job_type, spec.model, task.worker_id, spec.owner, error)
    return any(text in word.lower() for word in told if word)


# Logs, and which trees are kept for which task, in memory.


@dataclass(frozen=True, slots=True)
class MemoryOutput:
    _tables: MemoryTables

    async def add_logs(self, chunks: Sequence[LogChunk]) -> None:
        for chunk in chunks:
            self._tables.logs.setdefault(
                (chunk.task_id, chunk.attempt, chunk.seq),
                replace(chunk, lines=clean(chunk.lines)),
            )

    async def logs(
        self,
        task_id: str,
        after: tuple[int, int] = (0, 0),
        limit: int = 1000,
        *,
        attempt: int | None = None,
        limit_bytes: int | None = None,
    ) -> Sequence[LogChunk]:
        found: list[LogChunk] = []
        size = 0
        for place in self._log_places(task_id, attempt):
            if len(found) == limit or (limit_bytes is not None and size >= limit_bytes):
                break
            if place[1:] > after:
                found.append(self._tables.logs[place])
                size += len(found[-1].lines.encode())
        return found

    async def log_end(
        self, task_id: str, attempt: int | None = None
    ) -> tuple[int, int] | None:
        places = self._log_places(task_id, attempt)
        return places[-1][1:] if places else None

    def _log_places(
        self, task_id: str, attempt: int | None
    ) -> list[tuple[str, int, int]]:
        return sorted(
            p for p in self._tables.logs if p[0] == task_id and attempt in (None, p[1])
        )

    async def save_tree(self, tree: KeptTree) -> None:
        tree = replace(tree, left_out=clean(tree.left_out))
        self._tables.trees[tree.task_id, tree.kind, tree.attempt] = tree
        if tree.kind == CHECKPOINT:
            for old in await self.trees(tree.task_id, CHECKPOINT):
                if old.attempt < tree.attempt:
                    del self._tables.trees[old.task_id, old.kind, old.attempt]

    async def trees(self, task_id: str, kind: str) -> Sequence[KeptTree]:
        found = [
            tree
            for tree in self._tables.trees.values()
            if tree.task_id == task_id and tree.kind == kind
        ]
        return sorted(found, key=lambda tree: tree.attempt)

    async def forget_trees(self, task_id: str, kind: str) -> None:
        for tree in await self.trees(task_id, kind):
            del self._tables.trees[tree.task_id, tree.kind, tree.attempt]

    async def drop_trees(self) -> int:
        gone = [
            place
            for place, tree in self._tables.trees.items()
            if (task := self._tables.tasks.get(tree.task_id)) is None
            or (tree.kind == CHECKPOINT and task.state is State.COMPLETED)
        ]
        for place in gone:
            del self._tables.trees[place]
        return len(gone)

    async def kept_digests(self) -> set[str]:
        return {tree.digest for tree in self._tables.trees.values()}

    async def save_code(self, digest: str, owner: str, at: datetime) -> None:
        self._tables.code.setdefault(digest, (owner, at))

    async def code(self, digests: Sequence[str]) -> set[str]:
        return self._tables.code.keys() & set(digests)

    async def forget_code(self, digest: str) -> None:
        self._tables.code.pop(digest, None)

    async def payload_digests(self) -> set[str]:
        payloads = (task.spec.payload for task in self._tables.tasks.values())
        return {digest for text in payloads for digest in _DIGEST.findall(text)}
