"""Long polls: every caller the manager lets wait is woken here, by what it waits for,
by its deadline, or because the server closes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


async def rest(bell: asyncio.Event, timeout_s: float | None) -> None:
    """Until it is set, or so long."""
    with contextlib.suppress(TimeoutError):
        # Not wait_for: that one may swallow the cancellation of a stop.
        async with asyncio.timeout(timeout_s):
            await bell.wait()


class LongPoll:
    """All who wait for one thing; once it is closed, nobody waits any more."""

    __slots__ = ("__weakref__", "_next", "is_closed")

    def __init__(self, *, is_closed: bool = False) -> None:
        self._next = asyncio.Event()
        self.is_closed = is_closed

    def ring(self) -> None:
        """Let everybody look again."""
        rung, self._next = self._next, asyncio.Event()
        rung.set()

    def close(self) -> None:
        """Answer everybody now: the server closes."""
        self.is_closed = True
        self.ring()

    async def rung(self) -> None:
        """Return at the next ring, however late it comes."""
        await self._next.wait()

    async def poll(
        self,
        look: Callable[[], Awaitable[T]],
        is_news: Callable[[T], bool],
        wait_s: float,
        every_s: float | None = None,
    ) -> T:
        """What `look` finds once that is news, or as it is when the time is up.

        It looks when it is rung; `every_s` too, where time alone may bring news.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + wait_s
        while True:
            # Before the look: what comes after it rings again.
            bell = self._next
            found = await look()
            left_s = ends - loop.time()
            if is_news(found) or left_s <= 0 or self.is_closed:
                return found
            await rest(bell, left_s if every_s is None else min(left_s, every_s))


class TaskFollowers:
    """Who follows a task, rung for it: a line, progress, the end."""

    def __init__(self) -> None:
        # Those who wait hold the poll of their task; with the last of them it goes.
        self._by_task: WeakValueDictionary[str, LongPoll] = WeakValueDictionary()
        self.is_closing = False

    def of(self, task_id: str) -> LongPoll:
        """To be held while one waits."""
        found = self._by_task.get(task_id) or LongPoll(is_closed=self.is_closing)
        return self._by_task.setdefault(task_id, found)

    def ring(self, task_id: str) -> None:
        if (found := self._by_task.get(task_id)) is not None:
            found.ring()

    def release(self) -> None:
        """Let every follower go: the manager stops."""
        self.is_closing = True
        for found in list(self._by_task.values()):
            found.close()


class Waiters:
    """Callers that wait for the end of all tasks they name.

    No `LongPoll`: one may name a thousand tasks, and would look at all of them again
    whenever one of them ends or says a word. This one counts, and is woken once.
    """

    def __init__(self) -> None:
        self._by_task: dict[str, list[_Waiter]] = {}

    async def wait(
        self, task_ids: Iterable[str], is_live: Callable[[str], bool], timeout_s: float
    ) -> None:
        """Return when none of the tasks is live any more, or after the timeout."""
        watch = _Waiter({t for t in task_ids if is_live(t)})
        if not watch.left or timeout_s <= 0:
            return
        for task_id in watch.left:
            self._by_task.setdefault(task_id, []).append(watch)
        try:
            await rest(watch.done, timeout_s)
        finally:
            # Those that have ended are out of both.
            for task_id in watch.left:
                self._by_task[task_id].remove(watch)
                if not self._by_task[task_id]:
                    del self._by_task[task_id]

    def ended(self, task_id: str) -> None:
        for watch in self._by_task.pop(task_id, ()):
            watch.left.discard(task_id)
            if not watch.left:
                watch.done.set()

    def release(self) -> None:
        """Let every caller go: the manager stops."""
        for watches in self._by_task.values():
            for watch in watches:
                watch.done.set()


@dataclass(slots=True, eq=False)
class _Waiter:
    left: set[str]
    done: asyncio.Event = field(default_factory=asyncio.Event)
