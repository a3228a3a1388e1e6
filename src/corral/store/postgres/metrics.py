"""Readings in PostgreSQL: kept, thinned, read as charts; what was used and learned.

Thinning works in small transactions on connections of its own. Each moves a mark in
`cursors` with what it wrote, so that it is done once, whenever it is done.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Double,
    Integer,
    Table,
    Text,
    TextClause,
    bindparam,
    delete,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from corral.core.insight.learned import Learned
from corral.core.insight.metric import (
    GPU_METRICS,
    HOURS_S,
    MINUTES_S,
    SLACK_S,
    GpuSample,
    MetricSpan,
    MetricStep,
    TaskStep,
    TaskTotals,
)
from corral.core.insight.usage import UsageBy, UsageSpan, UsageStep
from corral.core.nodes.gpu import Gpu
from corral.core.nodes.node import Sample
from corral.store.postgres import metric_sql as sql
from corral.store.postgres import rows as record
from corral.store.postgres.connection import ConnectionPool
from corral.store.tables.events import cursors
from corral.store.tables.metadata import Texts, Time
from corral.store.tables.metrics import system_minutes, system_resources
from corral.store.tables.registry import cluster_nodes, learned, workers
from corral.store.text import clean, clean_or_none

# Readings of machines in one transaction, about; with them go those of their cards.
_BATCH = 5000
# A longer history goes on at the next call.
_BATCHES = 500
_TASKS = "metrics.tasks"
NO_WAIT = text("set local synchronous_commit = off")
_PARAMETER = re.compile(r"(?<!:):([a-z]\w*)")
_TYPES: Mapping[str, Any] = {
    "node_ids": Texts,
    "uuids": Texts,
    "indexes": ARRAY(Integer),
    "vendors": Texts,
    "names": Texts,
    "drivers": Texts,
    "totals": ARRAY(Double),
    "times": ARRAY(Time),
    **dict.fromkeys(GPU_METRICS, ARRAY(Double)),
    **{f"{end}{tier}": Time for end in ("from", "to") for tier in range(3)},
    "begin": Time,
    "end": Time,
    "until": Time,
    "now": Time,
    "label": Text,
    "after": BigInteger,
    "upto": BigInteger,
    "step": Double,
    "node_id": Text,
}
Subject = tuple[str, str, str, int, str]


@dataclass(frozen=True, slots=True)
class MetricRows:
    _pool: ConnectionPool

    async def save_beats(
        self,
        node_ids: Sequence[str],
        at: datetime,
        samples: Sequence[Sample],
        cards: Sequence[GpuSample] = (),
    ) -> None:
        ids = list(node_ids)
        async with self._pool.begin() as connection:
            # A beat lost in a crash is followed by the next: no wait for the disk.
            await connection.execute(NO_WAIT)
            for table, column in (
                (cluster_nodes, cluster_nodes.c.id),
                (workers, workers.c.node_id),
            ):
                # Rows somebody writes now are stamped the next time: to wait for them
                # while holding others could end in a deadlock.
                free = select(table.c.id).where(column.in_(ids))
                free = free.with_for_update(skip_locked=True, key_share=True)
                await connection.execute(
                    update(table).where(table.c.id.in_(free)).values(last_heartbeat=at)
                )
            if samples:
                await connection.execute(
                    insert(system_resources).on_conflict_do_nothing(),
                    [record.sample_row(sample) for sample in samples],
                )
            if cards:
                rows = _card_columns(cards)
                for statement in (sql.SAVE_GPUS, sql.SAVE_GPU_SAMPLES):
                    await connection.execute(_typed(statement, rows))

    async def samples(
        self, node_id: str, since: datetime, limit: int = 1000
    ) -> Sequence[Sample]:
        rows = await self._pool.mappings(
            select(system_resources)
            .where(
                system_resources.c.node_id == node_id, system_resources.c.at >= since
            )
            .order_by(system_resources.c.at.desc())
            .limit(limit)
        )
        return [record.sample_of(row) for row in rows]

    async def roll_up(self, now: datetime) -> None:
        end = int(now.timestamp()) - SLACK_S
        for step_s in (MINUTES_S, HOURS_S):
            for _ in range(_BATCHES):
                mark = await self._thin(step_s, end - end % step_s)
                if mark is None:
                    break
            # The next one is made of whole steps of this one.
            end = (await self.metric_marks()).get(step_s, 0)
        await self._pool.fetch(_typed(sql.NOTE_WAITING, {"until": now}))
        until = datetime.fromtimestamp(now.timestamp() - SLACK_S, UTC)
        for _ in range(_BATCHES):
            if not await self._count_tasks(until):
                break

    async def metric_marks(self) -> Mapping[int, int]:
        """Up to where (epoch seconds) readings are thinned, by step."""
        names = {_name(step_s): step_s for step_s in (MINUTES_S, HOURS_S)}
        rows = await self._pool.fetch(
            select(cursors).where(cursors.c.name.in_(list(names)))
        )
        return {names[row.name]: row.seq for row in rows}

    async def _thin(self, step_s: int, end: int) -> int | None:
        """One batch; how far it came, or None when there is no more to do."""
        tier = sql.STEPS.index(step_s) - 1
        source = (system_resources, system_minutes)[tier]
        async with self._pool.begin() as connection:
            mark = await _locked(connection, _name(step_s))
            begin, stop = await _batch(connection, source, mark, step_s, end)
            if begin < stop:
                values = {
                    "step": float(step_s),
                    f"from{tier}": _time(begin),
                    f"to{tier}": _time(stop),
                }
                for statement in (sql.thin_nodes(tier), sql.thin_gpus(tier)):
                    await connection.execute(_typed(statement, values))
            if stop != mark:
                await _move(connection, _name(step_s), stop)
        return stop if stop < end else None

    async def _count_tasks(self, until: datetime) -> bool:
        async with self._pool.begin() as connection:
            after = await _locked(connection, _TASKS)
            upto = await connection.scalar(
                _typed(sql.COUNT_UP_TO, {"after": after, "until": until})
            )
            if upto is None:
                return False
            await connection.execute(
                _typed(sql.COUNT_TASKS, {"after": after, "upto": upto})
            )
            await _move(connection, _TASKS, upto)
        return True

    async def node_history(
        self, node_id: str, span: MetricSpan
    ) -> Sequence[MetricStep]:
        values = await self._ranges(span) | {"node_id": clean(node_id)}
        rows = await self._pool.fetch(_typed(sql.NODE_CHART, values))
        return [_bucket(row) for row in rows]

    async def cluster_history(self, span: MetricSpan) -> Sequence[MetricStep]:
        values = await self._ranges(span)
        rows = await self._pool.fetch(_typed(sql.CLUSTER_CHART, values))
        return [_bucket(row) for row in rows]

    async def gpu_history(
        self, node_id: str, span: MetricSpan
    ) -> Sequence[tuple[Gpu, Sequence[MetricStep]]]:
        values = await self._ranges(span) | {"node_id": clean(node_id)}
        found: dict[int, tuple[Gpu, list[MetricStep]]] = {}
        for row in await self._pool.fetch(_typed(sql.GPU_CHART, values)):
            if row.id not in found:
                found[row.id] = (_card(row), [])
            found[row.id][1].append(_bucket(row[7:]))
        return list(found.values())

    async def task_totals(self, begin: int, end: int) -> TaskTotals:
        values = {"begin": _time(begin), "end": _time(end)}
        return TaskTotals(*(await self._pool.fetch(_typed(sql.TASK_TOTALS, values)))[0])

    async def task_history(self, span: MetricSpan) -> Sequence[TaskStep]:
        step = float(span.step_s)
        values = {"begin": _time(span.begin), "end": _time(span.end), "step": step}
        rows = await self._pool.fetch(_typed(sql.TASK_STEPS, values))
        return [TaskStep(*row) for row in rows]

    async def usage(
        self, by: UsageBy, label: str, span: UsageSpan
    ) -> Sequence[UsageStep]:
        values = {
            "begin": _time(span.begin),
            "end": _time(span.end),
            "now": span.now,
            "step": float(span.step_s),
            # What the text of a pair begins with whose first is this label.
            "label": record.to_json([label])[:-1] + ",",
        }
        rows = await self._pool.fetch(_typed(sql.usage(by), values))
        return [UsageStep(*row) for row in rows]

    async def save_learned(self, rows: Sequence[Learned], at: datetime) -> None:
        # In one order, always: two batches must not wait for each other's rows.
        values = [asdict(row) | {"at": at} for row in sorted(rows, key=subject_of)]
        await self._pool.save(learned, values)

    async def learned(self, limit: int) -> Sequence[Learned]:
        latest = select(learned).order_by(learned.c.at.desc()).limit(limit)
        rows = await self._pool.mappings(latest)
        found = [
            Learned(**{name: row[name] for name in Learned.__slots__}) for row in rows
        ]
        return sorted(found, key=subject_of)

    async def forget_learned(self, before: datetime) -> None:
        await self._pool.fetch(delete(learned).where(learned.c.at < before))

    async def _ranges(self, span: MetricSpan) -> dict[str, Any]:
        """Which stretch of a span comes from which table."""
        marks, at = await self.metric_marks(), span.begin
        values: dict[str, Any] = {"step": float(span.step_s)}
        for tier in (2, 1, 0):
            step_s = sql.STEPS[tier]
            mark = span.end if tier == 0 else marks.get(step_s, 0)
            is_used = tier == 0 or span.source_s >= step_s
            stop = min(max(mark, at), span.end) if is_used else at
            values |= {f"from{tier}": _time(at), f"to{tier}": _time(stop)}
            at = stop
        return values


def subject_of(row: Learned) -> Subject:
    """What a figure is of: there is one of each."""
    return row.kind, row.job_type, row.model, row.units, row.worker_id


def _name(step_s: int) -> str:
    return f"metrics.{step_s}"


def _time(epoch_s: float) -> datetime:
    return datetime.fromtimestamp(epoch_s, UTC)


async def _locked(connection: AsyncConnection, name: str) -> int:
    """A mark, held until the transaction ends: nobody else thins meanwhile."""
    # What a crash takes back is done again, mark and all.
    await connection.execute(NO_WAIT)
    await connection.execute(
        insert(cursors).values(name=name, seq=0).on_conflict_do_nothing()
    )
    query = select(cursors.c.seq).where(cursors.c.name == name).with_for_update()
    return int((await connection.execute(query)).scalar_one())


async def _batch(
    connection: AsyncConnection, source: Table, mark: int, step_s: int, end: int
) -> tuple[int, int]:
    """From the next reading on, whole steps with not too many readings."""
    left = select(source.c.at).where(source.c.at >= _time(mark)).order_by(source.c.at)
    first = await connection.scalar(left.limit(1))
    last = await connection.scalar(left.offset(_BATCH).limit(1))
    begin = end if first is None else _floor(first, step_s)
    stop = end if last is None else max(_floor(last, step_s), begin + step_s)
    # Never beyond the end, whence a mark of a clock that was wrong comes back, too.
    return begin, min(stop, end)


def _floor(at: datetime, step_s: int) -> int:
    return int(at.timestamp()) // step_s * step_s


async def _move(connection: AsyncConnection, name: str, seq: int) -> None:
    await connection.execute(
        update(cursors).where(cursors.c.name == name).values(seq=seq)
    )


def _typed(statement: str, values: Mapping[str, Any]) -> TextClause:
    """The statement with those of the values that it names."""
    names = set(_PARAMETER.findall(statement))
    return text(statement).bindparams(
        *(bindparam(name, values[name], type_=_TYPES[name]) for name in names)
    )


def _bucket(row: Sequence[Any]) -> MetricStep:
    at, samples, *figures = row
    return MetricStep(int(at), int(samples), tuple(figures[::2]), tuple(figures[1::2]))


def _card(row: Any) -> Gpu:
    return Gpu(
        row.gpu_uuid,
        row.vendor,
        row.name,
        row.gpu_index,
        memory_total_mb=row.memory_total_mb,
        driver=row.driver_version,
    )


def _card_columns(cards: Sequence[GpuSample]) -> dict[str, list[Any]]:
    gpus = [card.gpu for card in cards]
    return {
        "node_ids": [card.node_id for card in cards],
        "uuids": [clean(gpu.id) for gpu in gpus],
        "indexes": [gpu.index for gpu in gpus],
        "vendors": [clean(gpu.vendor) for gpu in gpus],
        "names": [clean(gpu.name) for gpu in gpus],
        "drivers": [clean_or_none(gpu.driver) for gpu in gpus],
        "totals": [gpu.memory_total_mb for gpu in gpus],
        "times": [card.at for card in cards],
        **{name: [getattr(gpu, name) for gpu in gpus] for name in GPU_METRICS},
    }
