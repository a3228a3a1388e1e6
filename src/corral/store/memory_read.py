"""Reads of tasks and their logs in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from corral.core.tasks.task import Attempt, State, Task
from corral.store.base import LogChunk, TaskFilter, TaskPage
from corral.store.cursor import read_cursor, write_cursor
from corral.store.memory_shelf import MemoryShelf
from corral.store.text import clean


class MemoryRead(MemoryShelf):
    async def get_task(self, task_id: str) -> Task | None:
        return self._tasks.get(task_id)

    async def get_tasks(self, task_ids: Sequence[str]) -> Sequence[Task]:
        return [self._tasks[id_] for id_ in set(task_ids) if id_ in self._tasks]

    async def list_tasks(
        self, where: TaskFilter, limit: int, offset: int = 0, cursor: str | None = None
    ) -> TaskPage:
        chosen = [task for task in self._tasks.values() if _matches(task, where)]
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
        return Counter(task.state for task in self._tasks.values())

    async def live_tasks(self) -> Sequence[Task]:
        live = (task for task in self._tasks.values() if not task.is_terminal)
        return [
            replace(task, spec=replace(task.spec, payload=""))
            for task in sorted(live, key=lambda task: task.seq)
        ]

    async def attempts(self, task_id: str) -> Sequence[Attempt]:
        kept = self._attempts.get(task_id, {})
        return [kept[attempt] for attempt in sorted(kept)]

    async def add_logs(self, chunks: Sequence[LogChunk]) -> None:
        for chunk in chunks:
            self._logs.setdefault(
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
                found.append(self._logs[place])
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
            p for p in self._logs if p[0] == task_id and attempt in (None, p[1])
        )


def _matches(task: Task, where: TaskFilter) -> bool:
    spec = task.spec
    return (
        (not where.states or task.state in where.states)
        and where.job_type in (None, spec.job_type)
        and where.worker_id in (None, task.worker_id)
        and where.owner in (None, spec.owner)
        and where.labels.items() <= spec.labels.items()
        and where.dead_letter in (None, task.dead_letter is not None)
        and where.model in (None, spec.model)
        and (not where.text or _has(task, where.text.lower()))
    )


def _has(task: Task, text: str) -> bool:
    spec, error = task.spec, task.error.message if task.error else None
    told = (spec.id, spec.job_type, spec.model, task.worker_id, spec.owner, error)
    return any(text in word.lower() for word in told if word)
