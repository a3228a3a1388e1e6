"""Pieces of output that running tasks emit: in memory only, and only so many.

Pieces are counted from 1 on. An attempt that goes on from the one before counts on;
one that begins again counts from 1 again, and what stood there is void.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

TASK_BYTES = 4 << 20
ALL_BYTES = 128 << 20
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

    def sweep(self, now: float, keep_s: float) -> None:
        """Forget streams of tasks that ended so long ago."""
        for task_id, stream in list(self._by_task.items()):
            if not stream.is_over:
                continue
            if stream.ended_at is None:
                stream.ended_at = now
            elif now - stream.ended_at >= keep_s:
                self.forget(task_id)
