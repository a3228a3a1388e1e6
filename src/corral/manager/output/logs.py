"""A task's log for those who follow it: read from the store, woken by what comes.

Lines have numbers, from 1 on in each attempt. The number of a chunk is that of its
last line, so a place in the log is (attempt, line) however it was cut into chunks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from corral.core.tasks.task import Task
from corral.errors import TaskNotFound
from corral.manager.context import ManagerContext
from corral.store.base import LogChunk

PAGE_BYTES = 128 << 10

Place = tuple[int, int]
"""(attempt, line): everything up to that line has been seen."""


@dataclass(frozen=True, slots=True)
class NumberedLine:
    attempt: int
    number: int
    at: float
    stream: str
    text: str


@dataclass(frozen=True, slots=True)
class LogPage:
    """Lines after a place. `is_last`: the task has ended, and so has its log."""

    task: Task
    lines: Sequence[NumberedLine]
    end: Place
    is_last: bool
    progress: tuple[float, str] | None


class TaskLogs:
    """Pages of logs, waited for."""

    def __init__(self, ctx: ManagerContext) -> None:
        self._store = ctx.store
        self._followers = ctx.cluster.followers
        self._progress = ctx.cluster.progress

    @property
    def is_closing(self) -> bool:
        return self._followers.is_closing

    async def tail(self, task_id: str, count: int, attempt: int | None) -> Place:
        """The place before the last `count` lines, of the last attempt that has any."""
        end = await self._store.output.log_end(task_id, attempt)
        return (end[0], max(end[1] - count, 0)) if end else (0, 0)

    async def page(self, task_id: str, after: Place, attempt: int | None) -> LogPage:
        """What there is now.

        Raises:
            TaskNotFound: there is no such task.
        """
        # Before its lines are read: what ends a task comes after all of them.
        task = await self._store.tasks.get_task(task_id)
        if task is None:
            raise TaskNotFound(f"no task {task_id!r}", task_id=task_id)
        progress = self._progress.get(task_id)
        chunks = await self._chunks(task_id, after, attempt)
        lines = [line for chunk in chunks for line in _lines(chunk, after)]
        end = max(((c.attempt, c.seq) for c in chunks), default=after)
        is_last = task.is_terminal or (attempt is not None and task.attempt > attempt)
        if is_last and chunks:
            last = await self._store.output.log_end(task_id, attempt)
            is_last = last is None or last <= end
        return LogPage(task, lines, end, is_last, progress)

    async def wait(
        self,
        task_id: str,
        after: Place,
        attempt: int | None,
        wait_s: float,
        known: float | None = None,
    ) -> LogPage:
        """A page once it has something to say, or as it is after `wait_s`.

        Progress counts where the caller says how far it knows the task to be.
        """

        def is_news(page: LogPage) -> bool:
            if page.lines or page.is_last:
                return True
            fraction = page.progress[0] if page.progress else known
            return known is not None and fraction != known

        poll = self._followers.of(task_id)
        return await poll.poll(
            lambda: self.page(task_id, after, attempt), is_news, wait_s
        )

    async def _chunks(
        self, task_id: str, after: Place, attempt: int | None
    ) -> Sequence[LogChunk]:
        return await self._store.output.logs(
            task_id, after, attempt=attempt, limit_bytes=PAGE_BYTES
        )


def _lines(chunk: LogChunk, after: Place) -> Iterator[NumberedLine]:
    rows = [
        (at, stream, text)
        for at, stream, texts in json.loads(chunk.lines)
        for text in texts.split("\n")
    ]
    first = chunk.seq - len(rows) + 1
    for number, row in enumerate(rows, first):
        if (chunk.attempt, number) > after:
            yield NumberedLine(chunk.attempt, max(number, 0), *row)
