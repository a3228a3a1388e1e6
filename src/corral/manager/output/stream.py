"""Readers of what running tasks emit, and the loop that clears it up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from corral.core.tasks.task import Task
from corral.errors import TaskNotFound
from corral.manager.cluster.streams import OutputStream, OutputStreams, Place
from corral.manager.cluster.waiters import TaskFollowers
from corral.manager.context import ManagerContext
from corral.store.base import TaskStore

log = logging.getLogger(__name__)
PAGE_BYTES = 256 << 10
SWEEP_S = 5.0
KEEP_S = 30.0
"""So long after its end a task's pieces can be read."""


@dataclass(frozen=True, slots=True)
class OutputPage:
    """What follows a place.

    `cut` is set when another attempt's pieces follow: what was seen after that number
    is void. `skipped` is how many are no longer here. `ended` is the task once it has
    ended and everything has been told.
    """

    attempt: int
    first: int
    values: Sequence[bytes]
    cut: int | None = None
    skipped: int = 0
    ended: Task | None = None

    @property
    def end(self) -> Place:
        return self.attempt, self.first + len(self.values) - 1

    @property
    def is_news(self) -> bool:
        return bool(self.values or self.ended or self.skipped or self.cut is not None)


class OutputReader:
    """One who follows one task's output."""

    def __init__(
        self,
        store: TaskStore,
        followers: TaskFollowers,
        streams: OutputStreams,
        is_live: Callable[[str], bool],
        task_id: str,
        after: Place,
    ) -> None:
        self._store = store
        self._is_live = is_live
        self._followers = followers
        self._streams = streams
        self._task_id = task_id
        self._attempt, self._number = after
        self._turns: int | None = None

    @property
    def is_closing(self) -> bool:
        return self._followers.is_closing

    async def check(self) -> None:
        """Raises TaskNotFound when there is no such task."""
        if self._is_live(self._task_id):
            return
        if await self._store.get_task(self._task_id) is None:
            raise TaskNotFound(f"no task {self._task_id!r}", task_id=self._task_id)

    async def next(self, wait_s: float) -> OutputPage:
        """What is new, once there is something, or nothing after `wait_s`."""
        poll = self._followers.of(self._task_id)
        page = await poll.poll(self._look, lambda page: page.is_news, wait_s)
        self._attempt, self._number = page.end
        return page

    async def _look(self) -> OutputPage:
        was_live = self._is_live(self._task_id)
        page = self._page()
        return page if page.is_news or was_live else await self._last(page)

    def _page(self) -> OutputPage:
        stream = self._streams.get(self._task_id)
        if stream is None:
            return OutputPage(self._attempt, self._number + 1, ())
        cut = self._void(stream)
        seen = self._number if cut is None else cut
        first = max(seen, stream.base)
        values = stream.values[first - stream.base :]
        page: list[bytes] = []
        size = 0
        for value in values:
            page.append(value)
            size += len(value)
            if size > PAGE_BYTES:
                break
        return OutputPage(stream.attempt, first + 1, page, cut, first - seen)

    def _void(self, stream: OutputStream) -> int | None:
        """Up to which piece what was seen still stands; None when all of it does."""
        turns = stream.turns
        if self._turns is None:
            later = [t for t in turns if t.attempt > self._attempt > 0]
        else:
            later = turns[self._turns :]
        self._turns = len(turns)
        return min((*(t.cut for t in later), self._number)) if later else None

    async def _last(self, page: OutputPage) -> OutputPage:
        task = await self._store.get_task(self._task_id)
        if task is None or not task.is_terminal:
            return page
        return OutputPage(page.attempt, page.first, (), ended=task)


class TaskOutput:
    """Readers of streams, and the loop that clears them up."""

    def __init__(self, ctx: ManagerContext) -> None:
        self._store: TaskStore = ctx.store.tasks
        self._followers = ctx.cluster.followers
        self._streams = ctx.cluster.streams
        self._is_live = ctx.cluster.is_live
        self._clock = ctx.clock

    def reader(self, task_id: str, after: Place = (0, 0)) -> OutputReader:
        parts = (self._store, self._followers, self._streams, self._is_live)
        return OutputReader(*parts, task_id, after)

    async def step(self) -> None:
        self._streams.sweep(self._clock.monotonic(), KEEP_S)
