"""What was used by whom, in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from corral.core.insight.usage import Usage, UsageBy, UsageSpan, cards_of
from corral.core.tasks.job_type import OWN_TYPES
from corral.core.tasks.task import State, Task
from corral.store.memory_shelf import MemoryShelf

_Run = tuple[Task, str | None, datetime | None, datetime | None]


class MemoryUsage(MemoryShelf):
    async def usage(self, by: UsageBy, label: str, span: UsageSpan) -> Sequence[Usage]:
        now = span.now.timestamp()
        found: dict[tuple[str, int], Usage] = {}
        for task, worker_id, started_at, finished_at in self._runs():
            if task.spec.job_type in OWN_TYPES or started_at is None:
                continue
            begin = started_at.timestamp()
            end = finished_at.timestamp() if finished_at else now
            if begin >= span.end or end <= span.begin:
                continue
            name = _name(task, by, label)
            cards = cards_of(task.spec.labels, self._cards_of_worker(worker_id))
            at = int(max(begin, span.begin)) // span.step_s * span.step_s
            while at <= min(end, span.end):
                after = at + span.step_s
                run_s = min(end, span.end, after) - max(begin, span.begin, at)
                ended = finished_at is not None and at <= end < after
                old = found.get((name, at), Usage(name, at, 0.0, 0.0, 0))
                run_s = max(run_s, 0.0)
                found[name, at] = Usage(
                    name,
                    at,
                    old.gpu_s + run_s * cards,
                    old.run_s + run_s,
                    old.ended + ended,
                )
                at = after
        return [found[key] for key in sorted(found)]

    def _runs(self) -> Iterator[_Run]:
        for attempts in self._attempts.values():
            for one in attempts.values():
                if one.task_id in self._tasks:
                    task = self._tasks[one.task_id]
                    yield task, one.worker_id, one.started_at, one.finished_at
        for task in self._tasks.values():
            if task.state in (State.COMPLETED, State.RUNNING):
                yield task, task.worker_id, task.started_at, task.finished_at

    def _cards_of_worker(self, worker_id: str | None) -> str:
        worker = self._workers.get(worker_id or "")
        if worker is not None:
            return worker.spec.gpus
        return self._gone_workers.get(worker_id or "", "")


def _name(task: Task, by: UsageBy, label: str) -> str:
    if by is UsageBy.OWNER:
        return task.spec.owner
    if by is UsageBy.JOB_TYPE:
        return task.spec.job_type
    return task.spec.labels.get(label, "")
