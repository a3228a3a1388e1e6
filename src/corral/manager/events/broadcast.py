"""Hands events to all who listen: each frame is made once for those who want the same.

Nobody waits for anybody. One who reads too slowly is let go, and may come again and go
on from the last number it has seen. While nobody listens nothing is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import chain, islice, takewhile
from typing import Any

from corral import __version__
from corral.core.access.key import Key
from corral.errors import RateLimited
from corral.manager.clock import Clock
from corral.manager.cluster.waiters import LongPoll
from corral.manager.events.filter import EventFilter, EventFormat, frame
from corral.manager.events.listener import (
    CloseReason,
    Listener,
    ListenerGroup,
    LiveConfig,
    Parts,
)
from corral.manager.events.ring import ClusterFact, EventRing, TaskChange, told
from corral.manager.signals import Signal
from corral.settings import is_loopback

FRAME_S = 0.1
"""Events within this time share a frame."""
_LINGER_S = 60.0
"""So long events are kept when the last one has left: it may come again."""
_PER_FRAME = 1000


class Broadcast:
    """All listeners of one manager."""

    def __init__(self, config: LiveConfig, clock: Clock) -> None:
        self.config = config
        self._clock = clock
        first = int(clock.now().timestamp() * 1e6)
        self.epoch = first
        """Which manager's life this is: every number of it is larger."""
        self._ring = EventRing(first, config.events, config.event_bytes)
        self._groups: dict[tuple[EventFilter, EventFormat], ListenerGroup] = {}
        self._flushed = first
        self._news, self._flushes = asyncio.Event(), LongPoll()
        self._awake_until = 0.0
        self.is_awake = False
        self.woken: Signal[()] = Signal()

    # those who tell ------------------------------------------------------------
    def tell(self, fact: ClusterFact) -> None:
        if self.is_awake:
            self._ring.add(fact)
            self._news.set()

    def tell_changes(self, changes: list[TaskChange]) -> None:
        if self.is_awake and changes:
            self._ring.change(changes)
            self._news.set()

    # those who listen ----------------------------------------------------------
    @property
    def listeners(self) -> list[Listener]:
        return [one for group in self._groups.values() for one in group.listeners]

    def listen(
        self,
        interest: EventFilter,
        face: EventFormat,
        key: Key,
        ip: str,
        after: int | None,
    ) -> Listener:
        """Begin to listen, with what came after a number, where that is still here.

        Raises:
            RateLimited: so many listen already.
        """
        self._check_room(key, ip)
        self._wake()
        self.flush()
        group = self._groups.setdefault((interest, face), ListenerGroup(interest, face))
        opening = self._opening(interest, face, after)
        one = Listener(group, key, ip, opening, group.end, group.size)
        group.listeners.add(one)
        return one

    def leave(self, one: Listener) -> None:
        """Listen no more; may be said twice."""
        group = one.group
        place = (group.interest, group.face)
        group.listeners.discard(one)
        # Others may want the same by now, in a group of their own.
        if not group.listeners and self._groups.get(place) is group:
            del self._groups[place]
        self._awake_until = self._clock.monotonic() + _LINGER_S

    def _check_room(self, key: Key, ip: str) -> None:
        listeners = self.listeners
        own = sum(one.key.id == key.id and one.ip == ip for one in listeners)
        if own >= self.config.per_client and not is_loopback(ip):
            raise RateLimited(
                f"this key listens {own} times from this address already; close one, "
                "or raise CORRAL_EVENT_LISTENERS_PER_CLIENT",
                retry_after_s=5,
            )
        if len(listeners) >= self.config.listeners:
            raise RateLimited(
                f"{len(listeners)} listen already; try again later, or raise "
                "CORRAL_EVENT_LISTENERS",
                retry_after_s=5,
            )

    def _opening(
        self, interest: EventFilter, face: EventFormat, after: int | None
    ) -> Iterator[Parts]:
        """A greeting, or that too much was missed, then what was missed.

        Each frame of it is made when it is sent: many may come at once.
        """
        now = self._clock.now()
        is_reset = after is not None and not self._ring.has(after)
        known = self._ring.last if after is None or is_reset else after
        name = "reset" if is_reset else "hello"
        greeting = told(name, now, known, self._greeting(is_reset))
        missed = interest.texts(list(self._ring.since(known)))
        rest = (frame(face, rows, now) for rows in _in_frames(missed))
        return chain([frame(face, [(known, greeting)], now)], rest)

    def _greeting(self, is_reset: bool) -> dict[str, Any]:
        facts: dict[str, Any] = {"epoch": self.epoch, "version": __version__}
        if is_reset:
            facts["reason"] = "what came after that number is no longer here: load anew"
        return facts

    async def page(
        self, interest: EventFilter, after: int | None, wait_s: float
    ) -> tuple[list[bytes], int]:
        """Events after a number, once there are any, and the number to go on from."""
        seen = after

        async def look() -> tuple[list[bytes], int]:
            nonlocal seen
            self._wake()
            last = self._flushed
            if seen is None:
                seen = last
            elif not self._ring.has(seen):
                # Of another life of the manager, or more came at once than is kept.
                now, facts = self._clock.now(), self._greeting(is_reset=True)
                return [told("reset", now, last, facts)], last
            found = self._missed(interest, seen)
            if len(found) == _PER_FRAME:
                last = found[-1][0]
            seen = max(seen, last)
            return [text for _, text in found], last

        return await self._flushes.poll(look, lambda page: bool(page[0]), wait_s)

    def _missed(self, interest: EventFilter, after: int) -> list[tuple[int, bytes]]:
        """Some of what was handed out since."""
        fresh = takewhile(
            lambda entry: entry.last <= self._flushed, self._ring.since(after)
        )
        return list(islice(interest.texts(list(fresh)), _PER_FRAME))

    # the loop ------------------------------------------------------------------
    async def step(self) -> None:
        """Rest until something happens, and hand it out."""
        await self._news.wait()
        self.flush()

    def flush(self) -> None:
        """Hand out what has happened."""
        self._news.clear()
        entries = list(self._ring.since(self._flushed))
        self._flushed = self._ring.last
        self._ring.close()
        if not entries:
            return
        now = self._clock.now()
        for group in list(self._groups.values()):
            # Before it is given more: it is judged by what it had time for.
            self._drop_slow(group)
            for rows in _in_frames(group.interest.texts(entries)):
                group.give(frame(group.face, rows, now))
        self._flushes.ring()

    def _drop_slow(self, group: ListenerGroup) -> None:
        now = self._clock.monotonic()
        for one in list(group.listeners):
            if one.is_too_slow(self.config, now):
                one.let_go(CloseReason.SLOW)
                self.leave(one)
        group.trim()

    def look_after(self, is_good: Callable[[Key], bool]) -> None:
        """Let go of those whose key is none any more or who stay behind; rest when
        nobody is left.
        """
        for one in self.listeners:
            if not is_good(one.key):
                one.let_go(CloseReason.KEY)
                self.leave(one)
        for group in list(self._groups.values()):
            self._drop_slow(group)
        is_over = self._clock.monotonic() >= self._awake_until
        if self.is_awake and is_over and not self._groups:
            self.is_awake = False
            self._ring.clear()
            self._flushed = self._ring.last

    def _wake(self) -> None:
        self._awake_until = self._clock.monotonic() + _LINGER_S
        if not self.is_awake:
            self.is_awake = True
            self.woken.tell()

    def now(self) -> datetime:
        return self._clock.now()

    def release(self) -> None:
        """Let everybody go: the manager stops."""
        self._flushes.close()
        for one in self.listeners:
            one.let_go(CloseReason.STOP)


def _in_frames(
    texts: Iterable[tuple[int, bytes]],
) -> Iterator[list[tuple[int, bytes]]]:
    rows = iter(texts)
    while some := list(islice(rows, _PER_FRAME)):
        yield some
