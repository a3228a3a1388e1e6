"""One who listens to events, and those who want the same.

Frames are kept once for all of a group; each of them knows how far it has come.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from corral.core.access.key import Key
from corral.manager.cluster.waiters import LongPoll
from corral.manager.events.filter import EventFilter, EventFormat

Parts = tuple[str, ...] | tuple[bytes, ...]
_FAR = 64
"""So many times what one may be behind is too much at once."""


@dataclass(frozen=True, slots=True)
class LiveConfig:
    """How many may listen, and what is kept for them.

    `per_client` is for one key at one address; who asks from this machine is not
    counted so: all that come through a proxy on it look the same. `origins` are those
    of pages on other hosts that may open a WebSocket.
    """

    listeners: int = 1000
    per_client: int = 10
    origins: tuple[str, ...] = ()
    events: int = 20_000
    event_bytes: int = 16 << 20
    backlog_bytes: int = 1 << 20
    backlog_frames: int = 300
    patience_s: float = 2.0
    """How long one may be behind by more than that."""
    farewell_s: float = 5.0
    """How long one who is let go may take to hear why."""


class CloseReason(StrEnum):
    """Why one is let go."""

    SLOW = "too slow: come again from the last seq, with a filter or detail=summary"
    KEY = "the key was revoked or is over"
    STOP = "the manager stops: come again"


@dataclass(frozen=True, slots=True)
class EventFrame:
    parts: Parts
    end: int
    """How much the group had been given with it, in bytes."""


@dataclass(slots=True, eq=False)
class ListenerGroup:
    """Those who want the same, and the frames that one of them has not yet had."""

    interest: EventFilter
    face: EventFormat
    frames: deque[EventFrame] = field(default_factory=deque)
    first: int = 0
    """The place of the oldest frame here among all there ever were."""
    size: int = 0
    listeners: set[Listener] = field(default_factory=set)
    news: LongPoll = field(default_factory=LongPoll)

    @property
    def end(self) -> int:
        return self.first + len(self.frames)

    def give(self, parts: Parts) -> None:
        self.size += sum(map(len, parts))
        self.frames.append(EventFrame(parts, self.size))
        self.news.ring()

    def trim(self) -> None:
        """Forget what everybody here has had."""
        seen = min((one.place for one in self.listeners), default=self.end)
        for _ in range(seen - self.first):
            self.frames.popleft()
        self.first = seen


@dataclass(slots=True, eq=False)
class Listener:
    """One who listens. `opening` is what it is told first."""

    group: ListenerGroup
    key: Key
    ip: str
    opening: Iterator[Parts]
    place: int = 0
    done: int = 0
    behind_since: float | None = None
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    why: CloseReason | None = None
    """Why it was let go, if it was."""

    async def next(self) -> Parts:
        """What comes next; nothing once it was let go."""
        group = self.group
        while self.place >= group.end:
            await group.news.rung()
        if self.gone.is_set():
            return ()
        found = group.frames[self.place - group.first]
        self.place, self.done = self.place + 1, found.end
        return found.parts

    @property
    def lag(self) -> tuple[int, int]:
        """Frames and bytes that wait for it."""
        return self.group.end - self.place, self.group.size - self.done

    def is_too_slow(self, limits: LiveConfig, now: float) -> bool:
        """Is it too far behind, or has it been behind for too long?"""
        frames, size = self.lag
        # One frame is nobody's fault, however large it is.
        is_behind = frames > limits.backlog_frames or (
            frames > 1 and size > limits.backlog_bytes
        )
        if not is_behind:
            self.behind_since = None
            return False
        self.behind_since = self.behind_since or now
        is_far = size > limits.backlog_bytes * _FAR
        return is_far or now - self.behind_since >= limits.patience_s

    def let_go(self, why: CloseReason) -> None:
        self.why = self.why or why
        self.gone.set()
