"""Writes of tasks: batched, guarded by term, state and attempt, each on its lane.

A batch is the arrays of one hot statement; one that the database refuses is halved
until the culprit stands alone.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Any, TypeVar

from corral.core.tasks.report import OutcomeKind
from corral.core.tasks.retry import Settlement
from corral.core.tasks.task import Overlap, State, Task, TaskError, TaskSpec
from corral.errors import BadRequest, NotLeader
from corral.store.base import Inserted, Placement
from corral.store.postgres.connection import WriterLane
from corral.store.postgres.rows import options_text
from corral.store.postgres.tasks import sql
from corral.store.postgres.tasks.sql import task_of
from corral.store.text import clean, clean_or_none

Row = TypeVar("Row")
Answer = TypeVar("Answer")
Array = list[Any] | None


def thin(column: list[Any], usual: Any = None) -> Array:
    """None for a column in which every row has its usual value.

    unnest pads it with nulls: neither side spends anything on the column then.
    """
    return None if column.count(usual) == len(column) else column


def array_literal(values: Sequence[str]) -> str | None:
    """PostgreSQL's own spelling of a text array; None when there is nothing in it."""
    if not values:
        return None
    quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return "{" + ",".join(f'"{value}"' for value in quoted) + "}"


def label_texts(labels: Mapping[str, str]) -> list[str]:
    """One JSON text a pair: containment of arrays then answers a label filter."""
    return [json.dumps(pair) for pair in sorted(labels.items())]


def _option_texts(specs: Sequence[TaskSpec]) -> list[str | None]:
    """Tasks of one request mostly share their options: those are written once."""
    known: dict[int, str | None] = {}
    return [
        known[key]
        if (key := id(spec.options)) in known
        else known.setdefault(key, options_text(spec.options))
        for spec in specs
    ]


def insert_arrays(tasks: Sequence[Task]) -> list[Array]:
    """In the order of `sql.INSERTED`."""
    specs = [task.spec for task in tasks]
    return [
        [spec.id for spec in specs],
        [spec.job_type for spec in specs],
        [spec.payload for spec in specs],
        thin([spec.priority for spec in specs], 0),
        thin([spec.model for spec in specs]),
        thin([spec.timeout_s for spec in specs]),
        thin([spec.retries for spec in specs], 0),
        thin([spec.run_after for spec in specs]),
        thin([spec.deadline for spec in specs]),
        thin([spec.idempotency_key for spec in specs]),
        thin([array_literal(label_texts(spec.labels)) for spec in specs]),
        thin([array_literal(spec.depends_on) for spec in specs]),
        thin([spec.overlap for spec in specs], Overlap.ALLOWED),
        thin([spec.owner for spec in specs], ""),
        thin(_option_texts(specs)),
        [task.state for task in tasks],
        thin([task.run for task in tasks], 1),
        thin([task.attempt for task in tasks], 1),
        thin([task.tries for task in tasks], 0),
        thin([task.losses for task in tasks], 0),
        thin([task.worker_id for task in tasks]),
        thin([task.incarnation for task in tasks]),
        thin([task.node_id for task in tasks]),
        [task.created_at for task in tasks],
        thin([task.assigned_at for task in tasks]),
    ]


def answered_arrays(tasks: Sequence[Task]) -> list[Array]:
    """In the order of `sql.ANSWERED`."""
    finished = [task.finished_at for task in tasks]
    return [*insert_arrays(tasks), finished, [task.result for task in tasks]]


# Updates lock rows in the order of their arrays. All of them go by id, so that two
# lanes that meet on the same tasks wait for each other but never in a circle.
_by_id = attrgetter("task_id")


def place_arrays(placements: Sequence[Placement]) -> list[Array]:
    """In the order of `sql.PLACED`."""
    placements = sorted(placements, key=_by_id)
    return [
        [p.task_id for p in placements],
        [p.attempt for p in placements],
        [p.worker_id for p in placements],
        [p.incarnation for p in placements],
        [p.node_id for p in placements],
    ]


def start_arrays(started: Sequence[tuple[str, int, datetime]]) -> list[Array]:
    """In the order of `sql.STARTED`."""
    return [list(column) for column in zip(*sorted(started), strict=True)]


def settle_arrays(settlements: Sequence[Settlement]) -> list[Array]:
    """In the order of `sql.SETTLED`; error texts are cleaned on the way."""
    settlements = sorted(settlements, key=_by_id)
    errors = [clean_error(s.error) for s in settlements]
    return [
        [s.task_id for s in settlements],
        [s.attempt for s in settlements],
        [s.state for s in settlements],
        [s.outcome for s in settlements],
        thin([s.tries for s in settlements], 0),
        thin([s.losses for s in settlements], 0),
        [s.finished_at for s in settlements],
        thin([s.run_after for s in settlements]),
        thin([s.started_at for s in settlements]),
        thin([s.result for s in settlements]),
        thin([error and error.kind for error in errors]),
        thin([error and error.message for error in errors]),
        thin([error and error.traceback for error in errors]),
        thin([s.dead_letter for s in settlements]),
    ]


def clean_error(error: TaskError | None) -> TaskError | None:
    if error is None:
        return None
    return TaskError(
        clean(error.kind), clean(error.message), clean_or_none(error.traceback)
    )


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
