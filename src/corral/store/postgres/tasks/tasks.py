"""Tasks in PostgreSQL: writes guarded by term, state and attempt, and reads.

A batch is the arrays of one hot statement, on the lane of its writer; one that the
database refuses is halved until the culprit stands alone.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, func, or_, select, text

from corral.core.tasks.outcome import OutcomeKind, Settlement
from corral.core.tasks.task import LIVE as LIVE_STATES
from corral.core.tasks.task import Attempt, State, Task, TaskError
from corral.errors import BadRequest, InvalidField
from corral.store.base import Inserted, Placement, TaskFilter, TaskPage
from corral.store.postgres.connection import ConnectionPool, WriterLane
from corral.store.postgres.errors import check_term
from corral.store.postgres.rows import option_text
from corral.store.postgres.tasks import sql
from corral.store.postgres.tasks.columns import (
    TASK_COLUMNS,
    answered_arrays,
    attempt_of,
    insert_arrays,
    label_texts,
    place_arrays,
    settle_arrays,
    task_of,
)
from corral.store.tables.tasks import LIVE, attempts, tasks
from corral.store.text import clean, is_storable

log = logging.getLogger(__name__)

Row = TypeVar("Row")
Answer = TypeVar("Answer")
_LIVE_PAGE = 5000
_SEARCHED = ("id", "job_type", "model", "worker_id", "owner", "error_message")
_TASK = [tasks.c[name] for name in TASK_COLUMNS]

# Updates lock rows in the order of their arrays. All of them go by id, so that two
# lanes that meet on the same tasks wait for each other but never in a circle.
_by_id = attrgetter("task_id")


def unstorable(settlement: Settlement, complaint: str) -> Settlement:
    """What becomes of an attempt whose result the database refuses."""
    return replace(
        settlement,
        state=State.FAILED,
        outcome=OutcomeKind.FAILED,
        tries=settlement.tries + 1,
        run_after=None,
        result=None,
        error=TaskError(
            "unstorable_result", f"its result could not be stored: {complaint}"
        ),
        dead_letter="failed",
    )


async def bisect(
    rows: Sequence[Row], run: Callable[[Sequence[Row]], Awaitable[Answer]]
) -> tuple[list[Answer], list[tuple[Row, str]]]:
    """Run a batch statement; when its data is refused, run both halves instead.

    Returns:
        The answers of the parts that went through, and the rows refused alone with
        the database's complaint.
    """
    try:
        return [await run(rows)], []
    except BadRequest as refusal:
        if len(rows) == 1:
            return [], [(rows[0], refusal.message)]
    middle = len(rows) // 2
    first = await bisect(rows[:middle], run)
    second = await bisect(rows[middle:], run)
    return first[0] + second[0], first[1] + second[1]


@dataclass(frozen=True, slots=True)
class TaskRows:
    _pool: ConnectionPool
    _submits: WriterLane
    _placements: WriterLane
    _reports: WriterLane
    _lookups: WriterLane
    """Tasks by id are asked for as often as tasks end; the pool costs far more CPU."""

    async def insert_tasks(self, term: int, tasks: Sequence[Task]) -> Inserted:
        async def run(part: Sequence[Task]) -> Sequence[Any]:
            if any(task.finished_at is not None for task in part):
                arrays = answered_arrays(part)
                return await self._submits.fetch(sql.INSERT_ANSWERED, term, *arrays)
            is_noted = any(task.spec.options.notify for task in part)
            text = sql.INSERT_NOTED if is_noted else sql.INSERT
            return await self._submits.fetch(text, term, *insert_arrays(part))

        if not tasks:
            return Inserted({})
        parts, refused = await bisect(tasks, run)
        created = {row[0]: row[1] for part in parts for row in part}
        if not created:
            await _check_term(self._submits, term)
        rejected = {task.id: complaint for task, complaint in refused}
        known = created.keys() | rejected.keys()
        missing = [task for task in tasks if task.id not in known]
        existing = await self._find(missing) if missing else {}
        for task in missing:
            if task.id not in existing:
                rejected[task.id] = "a task like it was there and has just been pruned"
        return Inserted(created, existing, rejected)

    async def _find(self, tasks: Sequence[Task]) -> dict[str, Task]:
        """The tasks already there, by the id that was sent in vain."""
        rows = await self._submits.fetch(sql.BY_ID, [task.id for task in tasks])
        found = {task.id: task for task in map(task_of, rows)}
        keyed = [task.spec for task in tasks if task.id not in found]
        rows = await self._submits.fetch(
            sql.BY_IDEMPOTENCY_KEY,
            [spec.owner for spec in keyed],
            [spec.idempotency_key for spec in keyed],
        )
        holders = {_key_of(task): task for task in map(task_of, rows)}
        for spec in keyed:
            holder = holders.get((spec.owner, spec.idempotency_key))
            if holder is not None:
                found[spec.id] = holder
        return found

    async def place_tasks(
        self, term: int, placements: Sequence[Placement], now: datetime
    ) -> Mapping[str, str]:
        if not placements:
            return {}
        rows = await self._placements.fetch(
            sql.PLACE, term, now, *place_arrays(sorted(placements, key=_by_id))
        )
        if not rows:
            await _check_term(self._placements, term)
        return {row[0]: row[1] for row in rows}

    async def start_tasks(
        self, term: int, started: Sequence[tuple[str, int, datetime]]
    ) -> set[str]:
        if not started:
            return set()
        arrays = [list(column) for column in zip(*sorted(started), strict=True)]
        rows = await self._reports.fetch(sql.START, term, *arrays)
        if not rows:
            await _check_term(self._reports, term)
        return {row[0] for row in rows}

    async def settle_tasks(
        self, term: int, settlements: Sequence[Settlement]
    ) -> set[str]:
        async def run(part: Sequence[Settlement]) -> Sequence[Any]:
            arrays = settle_arrays(sorted(part, key=_by_id))
            return await self._reports.fetch(sql.SETTLE, term, *arrays)

        if not settlements:
            return set()
        parts, refused = await bisect(settlements, run)
        for culprit, complaint in refused:
            log.error("result of task %r refused: %s", culprit.task_id, complaint)
            again, _ = await bisect([unstorable(culprit, complaint)], run)
            parts += again
        ended = {row[0] for part in parts for row in part}
        if not ended:
            await _check_term(self._reports, term)
        return ended

    async def discard_dead_letter(self, term: int, task_id: str) -> bool:
        rows = await self._reports.fetch(sql.DISCARD, term, clean(task_id))
        if not rows:
            await _check_term(self._reports, term)
        return bool(rows)

    async def requeue_task(self, term: int, task_id: str, now: datetime) -> Task | None:
        rows = await self._reports.fetch(sql.REQUEUE, term, clean(task_id), now)
        if not rows:
            await _check_term(self._reports, term)
            return None
        return task_of(rows[0])

    async def get_task(self, task_id: str) -> Task | None:
        found = await self.get_tasks([task_id])
        return found[0] if found else None

    async def get_tasks(self, task_ids: Sequence[str]) -> Sequence[Task]:
        # No task has an id that cannot be stored; asking for one is no error.
        ids = list(filter(is_storable, task_ids))
        rows = await self._lookups.fetch(sql.BY_ID, ids) if ids else []
        return [task_of(row) for row in rows]

    async def list_tasks(
        self, where: TaskFilter, limit: int, offset: int = 0, cursor: str | None = None
    ) -> TaskPage:
        chosen = _conditions(where)
        total = await self._pool.fetch(
            select(func.count()).select_from(tasks).where(*chosen)
        )
        page = select(*_TASK).where(*chosen).order_by(tasks.c.seq.desc())
        if cursor is not None:
            page = page.where(tasks.c.seq < read_cursor(cursor))
        rows = await self._pool.fetch(page.limit(limit + 1).offset(offset))
        found = tuple(task_of(row) for row in rows[:limit])
        more = len(rows) > limit and found
        return TaskPage(
            found, total[0][0], write_cursor(found[-1].seq) if more else None
        )

    async def count_tasks(self) -> Mapping[State, int]:
        rows = await self._pool.fetch(
            select(tasks.c.state, func.count()).group_by(tasks.c.state)
        )
        return {State(state): count for state, count in rows}

    async def live_tasks(self) -> Sequence[Task]:
        found: list[Task] = []
        last = 0
        while True:
            rows = await self._lookups.fetch(sql.LIVE_AFTER, last, _LIVE_PAGE)
            found.extend(map(task_of, rows))
            if len(rows) < _LIVE_PAGE:
                return found
            last = found[-1].seq

    async def attempts(self, task_id: str) -> Sequence[Attempt]:
        rows = await self._pool.mappings(
            select(attempts)
            .where(attempts.c.task_id == clean(task_id))
            .order_by(attempts.c.attempt)
        )
        return [attempt_of(row) for row in rows]


def _key_of(task: Task) -> tuple[str, str | None]:
    return task.spec.owner, task.spec.idempotency_key


async def _check_term(lane: WriterLane, term: int) -> None:
    """A statement that changed nothing may have been a deposed leader's."""
    rows = await lane.fetch(sql.TERM)
    check_term(term, rows[0][0] if rows else 0)


def _conditions(where: TaskFilter) -> list[ColumnElement[bool]]:
    chosen: list[ColumnElement[bool]] = []
    if where.states:
        chosen.append(tasks.c.state.in_([str(state) for state in where.states]))
        if set(where.states) <= LIVE_STATES:
            # Said so that the planner sees that the partial index will do.
            chosen.append(text(LIVE))  # type: ignore[arg-type]
    for name in ("job_type", "worker_id", "owner", "model"):
        value = getattr(where, name)
        if value is not None:
            chosen.append(tasks.c[name] == value)
    if where.labels:
        chosen.append(tasks.c.labels.contains(label_texts(where.labels)))
    for name in ("request_id", "schedule"):
        value = getattr(where, name)
        if value is not None:
            told = option_text(name, value)
            chosen.append(tasks.c.options.contains(told, autoescape=True))
    if where.dead_letter is not None:
        is_dead = tasks.c.dead_letter.is_not(None)
        chosen.append(is_dead if where.dead_letter else ~is_dead)
    if where.text:
        found = (
            tasks.c[name].icontains(where.text, autoescape=True) for name in _SEARCHED
        )
        chosen.append(or_(*found))
    return chosen


def write_cursor(seq: int) -> str:
    return base64.urlsafe_b64encode(str(seq).encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> int:
    """The seq in a cursor.

    Raises:
        InvalidField: when it is not one of ours.
    """
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        seq = int(base64.urlsafe_b64decode(padded))
    except ValueError:
        seq = -1
    if not 0 <= seq < 2**63:
        raise InvalidField("cursor is not one that this list gave", field="cursor")
    return seq
