"""The models of a runner whose lanes share them: one moves at a time, and none goes
while a lane uses it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from corral.worker.protocol import NO_LANE, Frame, Loading, Worn
from corral.worker.runner.memory_leak import CALM_S
from corral.worker.runner.model_slots import Shelf

AGAIN_S = 30.0
"""How often a lane that waits for a model says so: nobody shall take it for stuck."""


class SharedShelf(Shelf):
    """`need` and `leave` go around what a lane does with a model.

    A lane uses no model while it waits for one, so that those in use become free.
    """

    def __init__(
        self, worker: Any, room: int | None, tell: Callable[[Frame], None]
    ) -> None:
        super().__init__(worker, room, tell=self._tell_here)
        self._tell_all = tell
        self._lane = threading.local()
        self._changed = threading.Condition()
        self._users: Counter[str] = Counter()
        self._leaving: set[str] = set()
        self._is_moving = False

    def tell_by(self, tell: Callable[[Frame], None]) -> None:
        """What this thread does with models is told its own lane."""
        self._lane.tell = tell

    def need(self, name: str, edition: str = "") -> float:
        with self._changed:
            if self._has(name, edition) and name not in self._leaving:
                self._use(name)
                return 0.0
        try:
            while True:
                self._wait(lambda: name not in self._leaving, name)
                with self._move(name):
                    if self._has(name, edition) or name not in self._held:
                        return self._take_up(name, edition)
                # Of another edition: it goes when no lane uses it any more.
                self.drop([name])
        finally:
            self._say()

    def _take_up(self, name: str, edition: str) -> float:
        took_s = 0.0
        if name not in self._held:
            self._make_room(name)
            self._tell(Loading(name))
            took_s = self._load(name, edition)
        self._use(name)
        return took_s

    def leave(self) -> None:
        with self._changed:
            name = getattr(self._lane, "model", None)
            if name is not None:
                self._lane.model = None
                self._users[name] -= 1
                self._changed.notify_all()

    def drop(self, names: Sequence[str]) -> None:
        for name in names:
            if name in self._held:
                with self._going(name):
                    while not self._try_to_drop(name):
                        self._await_leave(name)
                self._say()

    def _await_leave(self, name: str) -> None:
        self._wait(lambda: not self._users[name], name)

    def _try_to_drop(self, name: str) -> bool:
        with self._move(name):
            if self._users[name]:
                return False
            if name in self._held:
                self._drop(name)
            return True

    def look(self) -> None:
        # Not while models move: what is held changes under them.
        with self._changed:
            if not self._is_moving:
                super().look()

    def wear_s(self) -> float | None:
        wait_s = super().wear_s()
        return None if wait_s is None else max(wait_s, CALM_S)

    def worn(self) -> Worn | None:
        """Only when no lane is at work can anybody tell what is lost."""
        with self._changed:
            is_calm = not self._is_moving and not self._users.total()
            return super().worn() if is_calm else None

    @property
    def names(self) -> list[str]:
        with self._changed:
            return super().names

    def _make_room(self, name: str) -> None:
        while len(self._held) >= self._room:
            self._wait(lambda: self._spare() is not None, name)
            with self._changed:
                spare = self._spare()
                if spare is None:
                    continue
                self._leaving.add(spare)
            with self._going(spare):
                self._drop(spare)

    def _spare(self) -> str | None:
        """The one that was not used for longest, of those that nobody uses now."""
        return next((name for name in self._held if not self._users[name]), None)

    def _use(self, name: str) -> None:
        with self._changed:
            self._held.move_to_end(name)
            self._users[name] += 1
            self._lane.model = name

    @contextmanager
    def _going(self, name: str) -> Iterator[None]:
        """Who needs it now waits until it is gone, and loads it again."""
        with self._changed:
            self._leaving.add(name)
        try:
            yield
        finally:
            with self._changed:
                self._leaving.discard(name)
                self._changed.notify_all()

    @contextmanager
    def _move(self, name: str) -> Iterator[None]:
        """Be the only one that loads or unloads."""
        while True:
            self._wait(lambda: not self._is_moving, name)
            with self._changed:
                if not self._is_moving:
                    self._is_moving = True
                    break
        try:
            yield
        finally:
            with self._changed:
                self._is_moving = False
                self._changed.notify_all()

    def _wait(self, is_so: Callable[[], bool], name: str) -> None:
        """Wait for other lanes; that is no part of a task's time."""
        while True:
            with self._changed:
                if self._changed.wait_for(is_so, 0.0):
                    return
            self._tell(Loading(name))
            with self._changed:
                if self._changed.wait_for(is_so, AGAIN_S):
                    return

    def _tell_here(self, frame: Frame) -> None:
        tell = getattr(self._lane, "tell", None)
        if tell is None:
            frame.lane, tell = NO_LANE, self._tell_all
        tell(frame)
