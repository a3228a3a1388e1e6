"""Reads of tasks: one, many, a page, and what is live after a restart."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from sqlalchemy import ColumnElement, func, or_, select, text

from corral.core.tasks.task import LIVE as LIVE_STATES
from corral.core.tasks.task import Attempt, State, Task
from corral.errors import InvalidField
from corral.store.base import TaskFilter, TaskPage
from corral.store.postgres.connection import ConnectionPool, WriterLane
from corral.store.postgres.rows import option_text
from corral.store.postgres.tasks.sql import (
    BY_ID,
    LIVE_AFTER,
    TASK_COLUMNS,
    attempt_of,
    task_of,
)
from corral.store.postgres.tasks.write import label_texts
from corral.store.tables.tasks import LIVE, attempts, tasks
from corral.store.text import clean, is_storable

_LIVE_PAGE = 5000
_SEARCHED = ("id", "job_type", "model", "worker_id", "owner", "error_message")
_TASK = [tasks.c[name] for name in TASK_COLUMNS]


class TaskRead:
    _pool: ConnectionPool
    _lookups: WriterLane
    """Tasks by id are asked for as often as tasks end; the pool costs far more CPU."""

    async def get_task(self, task_id: str) -> Task | None:
        found = await self.get_tasks([task_id])
        return found[0] if found else None

    async def get_tasks(self, task_ids: Sequence[str]) -> Sequence[Task]:
        # No task has an id that cannot be stored; asking for one is no error.
        ids = list(filter(is_storable, task_ids))
        rows = await self._lookups.fetch(BY_ID, ids) if ids else []
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
            rows = await self._lookups.fetch(LIVE_AFTER, last, _LIVE_PAGE)
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
