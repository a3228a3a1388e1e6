"""Writes of tasks: batched, guarded by term, state and attempt, each on its lane."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from corral.core.tasks.retry import Settlement
from corral.core.tasks.task import Task
from corral.core.tasks.webhook import NOTIFY
from corral.errors import NotLeader
from corral.store.base import Inserted, Placement
from corral.store.postgres.connection import WriterLane
from corral.store.postgres.tasks import sql
from corral.store.postgres.tasks.arrays import (
    answered_arrays,
    bisect,
    insert_arrays,
    place_arrays,
    settle_arrays,
    start_arrays,
    unstorable,
)
from corral.store.postgres.tasks.sql import task_of
from corral.store.text import clean

log = logging.getLogger(__name__)


class TaskWrite:
    _submits: WriterLane
    _placements: WriterLane
    _reports: WriterLane

    async def insert_tasks(self, term: int, tasks: Sequence[Task]) -> Inserted:
        async def run(part: Sequence[Task]) -> Sequence[Any]:
            if any(task.finished_at is not None for task in part):
                arrays = answered_arrays(part)
                return await self._submits.fetch(sql.INSERT_ANSWERED, term, *arrays)
            is_noted = any(NOTIFY in task.spec.labels for task in part)
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
            sql.PLACE, term, now, *place_arrays(placements)
        )
        if not rows:
            await _check_term(self._placements, term)
        return {row[0]: row[1] for row in rows}

    async def start_tasks(
        self, term: int, started: Sequence[tuple[str, int, datetime]]
    ) -> set[str]:
        if not started:
            return set()
        rows = await self._reports.fetch(sql.START, term, *start_arrays(started))
        if not rows:
            await _check_term(self._reports, term)
        return {row[0] for row in rows}

    async def settle_tasks(
        self, term: int, settlements: Sequence[Settlement]
    ) -> set[str]:
        async def run(part: Sequence[Settlement]) -> Sequence[Any]:
            return await self._reports.fetch(sql.SETTLE, term, *settle_arrays(part))

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


def _key_of(task: Task) -> tuple[str, str | None]:
    return task.spec.owner, task.spec.idempotency_key


async def _check_term(lane: WriterLane, term: int) -> None:
    """A statement that changed nothing may have been a deposed leader's."""
    rows = await lane.fetch(sql.TERM)
    current = rows[0][0] if rows else 0
    if current != term:
        raise NotLeader(
            f"term {term} is over, the current one is {current}", term=current
        )
