"""Readings in memory: kept, thinned, put together; what was used and learned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import itemgetter

from corral.core.insight.learned import Learned
from corral.core.insight.metric import (
    HOURS_S,
    MINUTES_S,
    SLACK_S,
    GpuSample,
    MetricSpan,
    MetricStep,
    TaskStep,
    TaskTotals,
    across,
    gather,
    gpu_bucket,
    node_bucket,
)
from corral.core.insight.usage import UsageBy, UsageSpan, UsageStep
from corral.core.nodes.gpu import Gpu
from corral.core.nodes.node import Sample
from corral.core.tasks.job_type import OWN_TYPES
from corral.core.tasks.needs import WHOLE, Need
from corral.core.tasks.task import State, Task
from corral.store.base import Retention
from corral.store.postgres.metrics import subject_of
from corral.store.text import clean, clean_or_none
from tests.twins.store_state import STEPS, MeasuredBy, MemoryTables

_FAILED = (State.FAILED, State.ERROR, State.TIMED_OUT)
_Run = tuple[Task, str | None, datetime | None, datetime | None]


@dataclass(frozen=True, slots=True)
class MemoryMetrics:
    _tables: MemoryTables

    async def save_beats(
        self,
        node_ids: Sequence[str],
        at: datetime,
        samples: Sequence[Sample],
        cards: Sequence[GpuSample] = (),
    ) -> None:
        for node in list(self._tables.nodes.values()):
            if node.id in node_ids:
                self._tables.nodes[node.id] = replace(node, last_heartbeat=at)
        for worker in list(self._tables.workers.values()):
            if worker.node_id in node_ids:
                self._tables.workers[worker.id] = replace(worker, last_heartbeat=at)
        for sample in samples:
            self._tables.samples.setdefault((sample.node_id, sample.at), sample)
        for card in cards:
            gpu = _facts(card.gpu)
            self._tables.gpus[card.node_id, gpu.id] = gpu
            self._tables.cards.setdefault((card.node_id, gpu.id, card.at), card)

    async def samples(
        self, node_id: str, since: datetime, limit: int = 1000
    ) -> Sequence[Sample]:
        chosen = [
            sample
            for sample in self._tables.samples.values()
            if sample.node_id == node_id and sample.at >= since
        ]
        return sorted(chosen, key=lambda s: s.at, reverse=True)[:limit]

    async def roll_up(self, now: datetime) -> None:
        end = int(now.timestamp()) - SLACK_S
        for step_s in STEPS:
            end -= end % step_s
            finer = 0 if step_s == MINUTES_S else MINUTES_S
            for key in self._measured():
                rows = self._rows(key, finer, self._tables.marks[step_s], end)
                for bucket in gather(rows, step_s):
                    self._tables.thinned[step_s][key, bucket.at] = bucket
            self._tables.marks[step_s] = end
        self._note_waiting(now)
        self._count_tasks(now - timedelta(seconds=SLACK_S))

    def _measured(self) -> set[MeasuredBy]:
        thinned = (key for rows in self._tables.thinned.values() for key, _ in rows)
        return (
            {(n, None) for n, _ in self._tables.samples}
            | set(self._tables.gpus)
            | set(thinned)
        )

    def _rows(
        self, key: MeasuredBy, step_s: int, begin: int, end: int
    ) -> Iterable[MetricStep]:
        rows: Iterable[MetricStep]
        if step_s:
            rows = (b for (k, _), b in self._tables.thinned[step_s].items() if k == key)
        elif key[1] is None:
            mine = (
                s
                for (node_id, _), s in self._tables.samples.items()
                if node_id == key[0]
            )
            rows = map(node_bucket, mine)
        else:
            rows = (
                gpu_bucket(s)
                for (n, g, _), s in self._tables.cards.items()
                if (n, g) == key
            )
        return [bucket for bucket in rows if begin <= bucket.at < end]

    def _count_tasks(self, until: datetime) -> None:
        done = [
            event.seq
            for event in self._tables.events
            if event.seq > self._tables.counted and event.at and event.at < until
        ]
        upto = max(done, default=self._tables.counted)
        for event in self._tables.events:
            if (
                self._tables.counted < event.seq <= upto
                and event.event_type == "tasks_settled"
            ):
                for id_, state in zip(
                    event.task_ids, event.data["states"], strict=True
                ):
                    if state != State.QUEUED and event.at:
                        self._count(id_, State(state), event.at)
        self._tables.counted = upto

    def _count(self, task_id: str, state: State, at: datetime) -> None:
        task = self._tables.tasks.get(task_id)
        if task is not None and task.spec.job_type in OWN_TYPES:
            return
        took_s = 0.0
        if task is not None and task.finished_at is not None and task.created_at:
            at = task.finished_at
            took_s = (at - task.created_at).total_seconds()
        step = int(at.timestamp()) // MINUTES_S * MINUTES_S
        known = self._tables.counts.get(step, TaskTotals())
        is_completed = state is State.COMPLETED
        self._tables.counts[step] = TaskTotals(
            known.ended + 1,
            known.completed + is_completed,
            known.failed + (state in _FAILED),
            known.response_s + (took_s if is_completed else 0.0),
        )

    async def node_history(
        self, node_id: str, span: MetricSpan
    ) -> Sequence[MetricStep]:
        return self._chart((node_id, None), span)

    async def gpu_history(
        self, node_id: str, span: MetricSpan
    ) -> Sequence[tuple[Gpu, Sequence[MetricStep]]]:
        cards = [gpu for (node, _), gpu in self._tables.gpus.items() if node == node_id]
        cards.sort(key=lambda gpu: gpu.index)
        found = [(gpu, self._chart((node_id, gpu.id), span)) for gpu in cards]
        return [(gpu, buckets) for gpu, buckets in found if buckets]

    async def cluster_history(self, span: MetricSpan) -> Sequence[MetricStep]:
        nodes = [key for key in self._measured() if key[1] is None]
        return across(self._chart(key, span) for key in nodes)

    async def task_totals(self, begin: int, end: int) -> TaskTotals:
        rows = [row for at, row in self._tables.counts.items() if begin <= at < end]
        return TaskTotals(
            sum(row.ended for row in rows),
            sum(row.completed for row in rows),
            sum(row.failed for row in rows),
            sum(row.response_s for row in rows),
            max((row.ended for row in rows), default=0),
        )

    async def task_history(self, span: MetricSpan) -> Sequence[TaskStep]:
        steps: dict[int, TaskStep] = {}
        for at in sorted(self._tables.counts.keys() | self._tables.waiting.keys()):
            if not span.begin <= at < span.end:
                continue
            step = at // span.step_s * span.step_s
            known, more = steps.get(step, TaskStep(step)), self._tables.counts.get(at)
            waits = [
                w
                for w in (known.waiting, self._tables.waiting.get(at))
                if w is not None
            ]
            steps[step] = TaskStep(
                step,
                known.completed + (more.completed if more else 0),
                known.failed + (more.failed if more else 0),
                known.response_s + (more.response_s if more else 0.0),
                max(waits, default=None),
            )
        return list(steps.values())

    def _note_waiting(self, now: datetime) -> None:
        step = int(now.timestamp()) // MINUTES_S * MINUTES_S
        waiting = sum(
            task.state is State.QUEUED and task.spec.job_type not in OWN_TYPES
            for task in self._tables.tasks.values()
        )
        self._tables.waiting[step] = max(waiting, self._tables.waiting.get(step, 0))

    def _chart(self, key: MeasuredBy, span: MetricSpan) -> list[MetricStep]:
        rows: list[MetricStep] = []
        at = span.begin
        for step_s in (HOURS_S, MINUTES_S, 0):
            if step_s <= span.source_s:
                mark = self._tables.marks[step_s] if step_s else span.end
                stop = min(max(mark, at), span.end)
                rows += self._rows(key, step_s, at, stop)
                at = stop
        return gather(rows, span.step_s)

    def prune(self, now: datetime, keep: Retention) -> Mapping[str, int]:
        at = now.timestamp()
        raw_end = min(at - keep.samples_s, self._tables.marks[MINUTES_S])
        old_samples = [k for k in self._tables.samples if k[1].timestamp() < raw_end]
        for node_key in old_samples:
            del self._tables.samples[node_key]
        old_cards = [k for k in self._tables.cards if k[2].timestamp() < raw_end]
        for card_key in old_cards:
            del self._tables.cards[card_key]
        gone = {"system_resources": len(old_samples), "gpu_resources": len(old_cards)}
        minutes_end = min(at - keep.minutes_s, self._tables.marks[HOURS_S])
        gone |= self._drop(MINUTES_S, "minutes", minutes_end)
        gone |= self._drop(HOURS_S, "hours", at - keep.hours_s)
        known = self._tables.counts.keys() | self._tables.waiting.keys()
        old_counts = [step for step in known if step < at - keep.hours_s]
        for step in old_counts:
            self._tables.counts.pop(step, None)
            self._tables.waiting.pop(step, None)
        return gone | {"task_counts": len(old_counts)}

    def _drop(self, step_s: int, name: str, end: float) -> dict[str, int]:
        rows = self._tables.thinned[step_s]
        old = [place for place in rows if place[1] < end]
        for place in old:
            del rows[place]
        cards = sum(key[1] is not None for key, _ in old)
        return {f"system_{name}": len(old) - cards, f"gpu_{name}": cards}

    async def usage(
        self, by: UsageBy, label: str, span: UsageSpan
    ) -> Sequence[UsageStep]:
        now = span.now.timestamp()
        found: dict[tuple[str, int], UsageStep] = {}
        for task, worker_id, started_at, finished_at in self._runs():
            if task.spec.job_type in OWN_TYPES or started_at is None:
                continue
            begin = started_at.timestamp()
            end = finished_at.timestamp() if finished_at else now
            if begin >= span.end or end <= span.begin:
                continue
            name = _name(task, by, label)
            cards = _cards_of(
                task.spec.options.resources, self._cards_of_worker(worker_id)
            )
            at = int(max(begin, span.begin)) // span.step_s * span.step_s
            while at <= min(end, span.end):
                after = at + span.step_s
                run_s = min(end, span.end, after) - max(begin, span.begin, at)
                ended = finished_at is not None and at <= end < after
                old = found.get((name, at), UsageStep(name, at, 0.0, 0.0, 0))
                run_s = max(run_s, 0.0)
                found[name, at] = UsageStep(
                    name,
                    at,
                    old.gpu_s + run_s * cards,
                    old.run_s + run_s,
                    old.ended + ended,
                )
                at = after
        return [found[key] for key in sorted(found)]

    def _runs(self) -> Iterator[_Run]:
        for attempts in self._tables.attempts.values():
            for one in attempts.values():
                if one.task_id in self._tables.tasks:
                    task = self._tables.tasks[one.task_id]
                    yield task, one.worker_id, one.started_at, one.finished_at
        for task in self._tables.tasks.values():
            if task.state in (State.COMPLETED, State.RUNNING):
                yield task, task.worker_id, task.started_at, task.finished_at

    def _cards_of_worker(self, worker_id: str | None) -> str:
        worker = self._tables.workers.get(worker_id or "")
        if worker is not None:
            return worker.spec.gpus
        return self._tables.gone_workers.get(worker_id or "", "")

    async def save_learned(self, rows: Sequence[Learned], at: datetime) -> None:
        self._tables.learned |= {subject_of(row): (at, row) for row in rows}

    async def learned(self, limit: int) -> Sequence[Learned]:
        every = sorted(self._tables.learned.values(), key=itemgetter(0), reverse=True)
        return sorted((row for _, row in every[:limit]), key=subject_of)

    async def forget_learned(self, before: datetime) -> None:
        self._tables.learned = {
            subject: kept
            for subject, kept in self._tables.learned.items()
            if kept[0] >= before
        }


def _facts(gpu: Gpu) -> Gpu:
    """What is kept of a card beside its readings, as a database would give it."""
    return Gpu(
        clean(gpu.id),
        clean(gpu.vendor),
        clean(gpu.name),
        gpu.index,
        memory_total_mb=gpu.memory_total_mb,
        driver=clean_or_none(gpu.driver),
    )


def _name(task: Task, by: UsageBy, label: str) -> str:
    if by is UsageBy.OWNER:
        return task.spec.owner
    if by is UsageBy.JOB_TYPE:
        return task.spec.job_type
    return task.spec.labels.get(label, "")


def _cards_of(need: Need | None, worker_gpus: str) -> float:
    """How many GPUs a run has: what its task asks for, or all of its worker."""
    if need is not None:
        return need.milli / WHOLE
    if worker_gpus.isdigit():
        return float(worker_gpus)
    return float(len(worker_gpus.split(","))) if worker_gpus else 0.0
