"""The outbox: what is to be told outside, whom, and when it is tried again.

Every receiver has a queue and a few calls of its own, so that one that is slow or away
holds up nobody else. What is sent, what of it stands in the store and what a refusal
means is known to those who put it here: they put it here again after a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from corral.core.backoff import Backoff
from corral.errors import StoreUnavailable
from corral.manager.clock import Clock
from corral.manager.cluster.waiters import rest

T = TypeVar("T")
PAUSE_S = 0.02
"""Between calls that wait for one receiver: a flood must not slow the work itself."""
BROKEN_S = 5.0
"""After so long what could not be sent is tried again as it was: the store is away."""

Send = Callable[[T, int, float], Awaitable[T | None]]
"""`send(item, number, delay_s)`: what is left to be sent after `delay_s`, None once it
is done with. `number` says which try this is, from 1 on."""


@dataclass(frozen=True, slots=True)
class _Parcel(Generic[T]):
    """One thing for one receiver, after so many tries that failed."""

    item: T
    receiver: str
    tries: int
    due: float


@dataclass(slots=True)
class _Receiver(Generic[T]):
    """What waits for its turn with one receiver, and how many calls are with it."""

    waiting: deque[tuple[Hashable, _Parcel[T]]] = field(default_factory=deque)
    calls: int = 0


class Outbox(Generic[T]):
    """`put`, and `begin` after each `rest`; `close` in the end.

    There is one call at a time for one key. What is put while that is under way is
    sent after it, and not before it would be tried again. `window` is how many calls
    there may be to one receiver at once, of `most_calls` to all.
    """

    def __init__(
        self,
        clock: Clock,
        backoff: Backoff,
        send: Send[T],
        *,
        window: int,
        most_calls: int,
    ) -> None:
        self._clock = clock
        self._backoff = backoff
        self._send = send
        self._window = window
        self._later: dict[Hashable, _Parcel[T]] = {}
        self._underway: set[Hashable] = set()
        self._receivers: dict[str, _Receiver[T]] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(most_calls)
        self._news = asyncio.Event()
        self._fault: BaseException | None = None

    def put(
        self, key: Hashable, receiver: str, item: T, tries: int = 0, after_s: float = 0
    ) -> None:
        """Have it sent, in the place of what waits under the same key."""
        due = self._clock.monotonic() + after_s
        self._later[key] = _Parcel(item, receiver, tries, due)
        self._news.set()

    def ring(self) -> None:
        """End the rest: there is something to put."""
        self._news.set()

    def waits(self, key: Hashable) -> bool:
        return key in self._later

    def items(self) -> list[T]:
        """All that waits for its time."""
        return [parcel.item for parcel in self._later.values()]

    def due(self) -> dict[Hashable, T]:
        """All that `begin` would begin with."""
        now, busy = self._clock.monotonic(), self._underway
        rows = self._later.items()
        return {k: p.item for k, p in rows if p.due <= now and k not in busy}

    async def rest(self, most_s: float | None = None) -> bool:
        """Until there is something to do, or so long; whether there is."""
        now, busy = self._clock.monotonic(), self._underway
        times = [p.due - now for k, p in self._later.items() if k not in busy]
        if most_s is not None:
            times.append(most_s)
        await rest(self._news, max(min(times), 0.0) if times else None)
        return self._news.is_set() or bool(self.due())

    def begin(self) -> None:
        """Begin with all that is due; raises what went wrong in a call before."""
        self._news.clear()
        for key in self.due():
            self._hand_over(key)
        self._raise_fault()

    async def settled(self) -> None:
        """Return when no call is under way; raises what went wrong in one."""
        while self._calls:
            await asyncio.wait(self._calls)
        self._raise_fault()

    async def close(self) -> None:
        for receiver in self._receivers.values():
            receiver.waiting.clear()
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    # calls -----------------------------------------------------------------------
    def _hand_over(self, key: Hashable) -> None:
        parcel = self._later.pop(key)
        self._underway.add(key)
        receiver = self._receivers.setdefault(parcel.receiver, _Receiver())
        receiver.waiting.append((key, parcel))
        if receiver.calls < self._window:
            self._serve(parcel.receiver, receiver)

    def _serve(self, name: str, receiver: _Receiver[T]) -> None:
        receiver.calls += 1
        call = asyncio.create_task(self._send_all(receiver))
        self._calls.add(call)
        call.add_done_callback(lambda _: self._served(call, name, receiver))

    async def _send_all(self, receiver: _Receiver[T]) -> None:
        while receiver.waiting:
            key, parcel = receiver.waiting.popleft()
            async with self._room:
                await self._try(key, parcel)
            await asyncio.sleep(PAUSE_S if receiver.waiting else 0)

    def _served(
        self, call: asyncio.Task[None], name: str, receiver: _Receiver[T]
    ) -> None:
        self._calls.discard(call)
        receiver.calls -= 1
        if not call.cancelled() and (fault := call.exception()) is not None:
            self._fault = fault
            self._news.set()
        if receiver.waiting:
            # What broke must not hold up what is behind it.
            self._serve(name, receiver)
        elif not receiver.calls:
            self._receivers.pop(name, None)

    async def _try(self, key: Hashable, parcel: _Parcel[T]) -> None:
        number = parcel.tries + 1
        delay_s = self._backoff.delay_s(number, random.random())
        # Unless the call says otherwise all is as it was.
        left: T | None = parcel.item
        tries, again_s = parcel.tries, BROKEN_S
        try:
            with contextlib.suppress(StoreUnavailable):
                left = await self._send(parcel.item, number, delay_s)
                tries, again_s = number, delay_s
        finally:
            self._underway.discard(key)
            newer = self._later.get(key)
            if left is not None:
                item = left if newer is None else newer.item
                self.put(key, parcel.receiver, item, tries, again_s)
            elif newer is not None and newer.due <= self._clock.monotonic():
                self._hand_over(key)

    def _raise_fault(self) -> None:
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault
