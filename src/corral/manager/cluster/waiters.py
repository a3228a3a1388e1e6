"""Callers that wait for tasks to end, woken by the settlement itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


class TaskFollowers:
    """One bell per follower, rung for its task: a line, progress, the end."""

    def __init__(self) -> None:
        self._by_task: dict[str, set[asyncio.Event]] = {}
        self.is_closing = False

    @contextmanager
    def watch(self, task_id: str) -> Iterator[asyncio.Event]:
        bell = asyncio.Event()
        self._by_task.setdefault(task_id, set()).add(bell)
        try:
            yield bell
        finally:
            followers = self._by_task[task_id]
            followers.discard(bell)
            if not followers:
                del self._by_task[task_id]

    def ring(self, task_id: str) -> None:
        for bell in self._by_task.get(task_id, ()):
            bell.set()

    def release(self) -> None:
        """Let every follower go: the manager stops."""
        self.is_closing = True
        for task_id in self._by_task:
            self.ring(task_id)


class Waiters:
    """Long polls: one future per caller, however many tasks it names."""

    def __init__(self) -> None:
        self._by_task: dict[str, list[_Waiter]] = {}

    async def wait(
        self, task_ids: Iterable[str], is_live: Callable[[str], bool], timeout_s: float
    ) -> None:
        """Return when none of the tasks is live any more, or after the timeout."""
        watch = _Waiter({t for t in task_ids if is_live(t)})
        if not watch.left or timeout_s <= 0:
            return
        watched = tuple(watch.left)
        for task_id in watched:
            self._by_task.setdefault(task_id, []).append(watch)
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(watch.future, timeout_s)
        finally:
            self._remove(watch, watched)

    def ended(self, task_id: str) -> None:
        for watch in self._by_task.pop(task_id, ()):
            watch.left.discard(task_id)
            if not watch.left and not watch.future.done():
                watch.future.set_result(None)

    def release(self) -> None:
        """Let every caller go: the manager stops."""
        for watches in self._by_task.values():
            for watch in watches:
                if not watch.future.done():
                    watch.future.set_result(None)

    def _remove(self, watch: _Waiter, task_ids: tuple[str, ...]) -> None:
        for task_id in task_ids:
            watches = self._by_task.get(task_id)
            if watches and watch in watches:
                watches.remove(watch)
                if not watches:
                    del self._by_task[task_id]


class _Waiter:
    __slots__ = ("future", "left")

    def __init__(self, left: set[str]) -> None:
        self.left = left
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
