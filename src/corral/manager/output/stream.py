"""Pieces of output that running tasks emit: in memory only, and only so many.

Pieces are counted from 1 on. An attempt that goes on from the one before counts on;
one that begins again counts from 1 again, and what stood there is void.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from corral.core.tasks.task import Task
from corral.errors import CorralError, TaskNotFound
from corral.manager.clock import Clock
from corral.manager.cluster.waiters import TaskFollowers
from corral.store.base import Store

log = logging.getLogger(__name__)
TASK_BYTES = 4 << 20
ALL_BYTES = 128 << 20
PAGE_BYTES = 256 << 10
GRACE_S = 30.0
SWEEP_S = 5.0
_COST = 64
"""About what a piece takes beside its text."""

Place = tuple[int, int]
"""(attempt, number): everything up to that piece has been seen."""


@dataclass(frozen=True, slots=True)
class AttemptPieces:
    """What one attempt has emitted, from number `first` on; each is JSON."""

    task_id: str
    attempt: int
    first: int
    values: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class _AttemptStart:
    """From here on the pieces are this attempt's; those after `cut` are void."""

    attempt: int
    cut: int


@dataclass(slots=True)
class OutputStream:
    """Everything kept of one task; `base` is how many came before."""

    base: int
    values: list[bytes] = field(default_factory=list)
    turns: list[_AttemptStart] = field(default_factory=list)
    size: int = 0
    is_over: bool = False
    ended_at: float | None = None

    @property
    def end(self) -> int:
        return self.base + len(self.values)

    @property
    def attempt(self) -> int:
        return self.turns[-1].attempt

    def add(self, pieces: AttemptPieces) -> None:
        first = pieces.first
        if pieces.attempt != self.attempt or first <= self.end:
            self.turns.append(_AttemptStart(pieces.attempt, first - 1))
            self._cut(first - 1)
        if first > self.end + 1:  # some were lost with another manager
            self._drop(len(self.values))
            self.base = first - 1
        self.values += pieces.values
        self.size += sum(len(value) + _COST for value in pieces.values)
        while self.size > TASK_BYTES and len(self.values) > 1:
            self._drop(max(len(self.values) // 4, 1))

    def _cut(self, count: int) -> None:
        """Void everything after the first `count`."""
        keep = max(count - self.base, 0)
        self.size -= sum(len(value) + _COST for value in self.values[keep:])
        del self.values[keep:]
        self.base = min(self.base, count)

    def _drop(self, count: int) -> None:
        """Forget the oldest."""
        self.size -= sum(len(value) + _COST for value in self.values[:count])
        del self.values[:count]
        self.base += count


class OutputStreams:
    """The streams of all tasks. What ended goes first when they grow too large."""

    def __init__(self, limit: int = ALL_BYTES) -> None:
        self._limit = limit
        self._by_task: dict[str, OutputStream] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._by_task)

    def get(self, task_id: str) -> OutputStream | None:
        return self._by_task.get(task_id)

    def add(self, pieces: AttemptPieces) -> None:
        stream = self._by_task.get(pieces.task_id)
        if stream is not None and stream.is_over:  # it runs once more
            stream = None
        self.forget(pieces.task_id)
        if stream is None:
            before = pieces.first - 1
            stream = OutputStream(before, turns=[_AttemptStart(pieces.attempt, before)])
        # Last again: those that say nothing for long stand in front.
        self._by_task[pieces.task_id] = stream
        stream.add(pieces)
        self._size += stream.size
        while self._size > self._limit and len(self._by_task) > 1:
            ended = (t for t, s in self._by_task.items() if s.is_over)
            self.forget(next(ended, next(iter(self._by_task))))

    def emitted(self, task_id: str, attempt: int) -> tuple[bytes, ...]:
        """What attempts before this one have sent, where all of it is still here."""
        stream = self._by_task.get(task_id) if attempt > 1 else None
        if stream is None or stream.base or stream.is_over:
            return ()
        return tuple(stream.values) if stream.attempt < attempt else ()

    def end(self, task_id: str) -> None:
        """The task has ended; what it said is kept for a while."""
        if (stream := self._by_task.get(task_id)) is not None:
            stream.is_over = True

    def forget(self, task_id: str) -> None:
        stream = self._by_task.pop(task_id, None)
        self._size -= stream.size if stream else 0

    def sweep(self, now: float) -> None:
        """Forget streams of tasks that ended a while ago."""
        for task_id, stream in list(self._by_task.items()):
            if not stream.is_over:
                continue
            if stream.ended_at is None:
                stream.ended_at = now
            elif now - stream.ended_at >= GRACE_S:
                self.forget(task_id)


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
        store: Store,
        bells: TaskFollowers,
        streams: OutputStreams,
        is_live: Callable[[str], bool],
        task_id: str,
        after: Place,
    ) -> None:
        self._store = store
        self._is_live = is_live
        self._bells = bells
        self._streams = streams
        self._task_id = task_id
        self._attempt, self._number = after
        self._turns: int | None = None

    @property
    def is_closing(self) -> bool:
        return self._bells.is_closing

    async def check(self) -> None:
        """Raises TaskNotFound when there is no such task."""
        if self._is_live(self._task_id):
            return
        if await self._store.get_task(self._task_id) is None:
            raise TaskNotFound(f"no task {self._task_id!r}", task_id=self._task_id)

    async def next(self, wait_s: float) -> OutputPage:
        """What is new, once there is something, or nothing after `wait_s`."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + wait_s
        with self._bells.watch(self._task_id) as bell:
            while True:
                # Before the look: what comes after it rings again.
                bell.clear()
                was_live = self._is_live(self._task_id)
                page = self._look()
                if not page.is_news and not was_live:
                    page = await self._last(page)
                left_s = ends - loop.time()
                if page.is_news or left_s <= 0 or self._bells.is_closing:
                    self._attempt, self._number = page.end
                    return page
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(bell.wait(), left_s)

    def _look(self) -> OutputPage:
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

    def __init__(
        self,
        store: Store,
        bells: TaskFollowers,
        streams: OutputStreams,
        is_live: Callable[[str], bool],
        clock: Clock,
        cancel: Callable[[str], Awaitable[None]],
    ) -> None:
        self._store = store
        self._bells = bells
        self._streams = streams
        self._is_live = is_live
        self._clock = clock
        self._cancel = cancel
        self._strays: set[asyncio.Task[None]] = set()

    def reader(self, task_id: str, after: Place = (0, 0)) -> OutputReader:
        parts = (self._store, self._bells, self._streams, self._is_live)
        return OutputReader(*parts, task_id, after)

    def give_up(self, task_id: str) -> None:
        """Nobody wants this task any more: cancel it, without waiting for that.

        Who went away is often a coroutine that is being cancelled itself.
        """
        stray = asyncio.create_task(self._stop(task_id))
        self._strays.add(stray)
        stray.add_done_callback(self._strays.discard)

    async def _stop(self, task_id: str) -> None:
        if not self._is_live(task_id):
            return
        try:
            await self._cancel(task_id)
        except CorralError as error:
            log.info("task %s is not cancelled: %s", task_id, error.message)

    async def step(self) -> None:
        self._streams.sweep(self._clock.monotonic())
