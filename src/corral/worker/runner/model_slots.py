"""The models one runner keeps in memory: loaded before use, dropped when told to.

What to drop for which model is decided where orders are made; only a shelf that is full
all the same drops what was not used for longest.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import msgspec

from corral.wire.orders import ModelInMemory
from corral.worker.protocol import (
    NO_LANE,
    Frame,
    MemoryLeakFrame,
    ModelLoadFrame,
    ModelsFrame,
)
from corral.worker.runner.gpu_memory import GpuMemory
from corral.worker.runner.memory_leak import CALM_S, MemoryLeakCheck

ROOM = 5
FACTS = ("device", "precision", "layers", "peaks")
"""What `model_facts` of a class may tell."""
AGAIN_S = 30.0
"""How often a lane that waits for a model says so: nobody shall take it for stuck."""


class ModelSlots:
    """Calls a worker's model hooks, so that at most `room` models are held.

    `tell` gets a frame when a load begins, and when what is held has changed.
    """

    def __init__(
        self,
        worker: Any,
        room: int | None = None,
        memory: GpuMemory | None = None,
        tell: Callable[[Frame], None] = lambda frame: None,
    ) -> None:
        self._worker = worker
        self._room = ROOM if room is None else room
        self._memory = memory or GpuMemory()
        self._tell = tell
        self._held: OrderedDict[str, ModelInMemory] = OrderedDict()
        self.leak_check = MemoryLeakCheck()

    def need(self, name: str, edition: str = "") -> float:
        """Have `name` loaded; the seconds its load took, 0 when it was there.

        One of another edition is loaded anew. What the hooks raise fails the task that
        needs it.
        """
        if self._has(name, edition):
            self._held.move_to_end(name)
            return 0.0
        self._tell(ModelLoadFrame(name))
        try:
            if name in self._held:
                self._drop(name)
            while len(self._held) >= self._room:
                self._drop(next(iter(self._held)))
            return self._load(name, edition)
        finally:
            self._say()

    def _has(self, name: str, edition: str) -> bool:
        held = self._held.get(name)
        return held is not None and edition in ("", held.edition)

    @property
    def names(self) -> list[str]:
        return list(self._held)

    def leave(self) -> None:
        """Whoever had need of a model is through with it."""

    def tell_by(self, tell: Callable[[Frame], None]) -> None:
        """Tell this from now on."""
        self._tell = tell

    def leak_wait_s(self) -> float | None:
        """How long nothing must come until `leak` is to be asked; None for ever."""
        return self.leak_check.wait_s()

    def leak(self) -> MemoryLeakFrame | None:
        """Memory that is lost for sure, as nothing runs."""
        return self.leak_check.verdict()

    def drop(self, names: Sequence[str]) -> None:
        """Have none of these in memory any more."""
        held = [name for name in names if name in self._held]
        try:
            for name in held:
                self._drop(name)
        finally:
            if held:
                self._say()

    def sizes(self) -> dict[str, float]:
        """MB of the models that the class can name before it has loaded them."""
        ask = getattr(self._worker, "model_sizes", None)
        told = ask() if callable(ask) else None
        if not isinstance(told, Mapping):
            return {}
        return {str(name): float(size) for name, size in told.items()}

    def look(self) -> None:
        """A batch is over: say what its class has learned of the model since."""
        if not callable(getattr(self._worker, "model_facts", None)):
            return
        seen = {name: self._with_facts(held) for name, held in self._held.items()}
        if seen != self._held:
            self._held.update(seen)
            self._say()

    def _load(self, name: str, edition: str = "") -> float:
        before = self.leak_check.loading()
        began_at, began = time.time(), time.perf_counter()
        self._call("load_model", name)
        took_s = time.perf_counter() - began
        told = self._call("model_memory_mb", name)
        size_mb = float(told) if told is not None else None
        self._memory.take(name, size_mb)
        self.leak_check.loaded(name, before, size_mb)
        held = ModelInMemory(
            name,
            size_mb,
            took_s,
            loaded_at=began_at + took_s,
            edition=edition,
        )
        self._held[name] = self._with_facts(held)
        return took_s

    def _with_facts(self, held: ModelInMemory) -> ModelInMemory:
        told = self._call("model_facts", held.name)
        if not isinstance(told, Mapping):
            return held
        known = {name: told[name] for name in FACTS if name in told}
        return msgspec.convert(asdict(held) | known, ModelInMemory)

    def _drop(self, name: str) -> None:
        # Whatever its hook does, it is not used again without another load.
        del self._held[name]
        before = self.leak_check.dropping(name)
        try:
            self._call("unload_model", name)
        finally:
            self._memory.give_back(name)
            self.leak_check.dropped(name, before)

    def _call(self, hook: str, name: str) -> Any:
        """A class need not have every hook."""
        call = getattr(self._worker, hook, None)
        return call(name) if callable(call) else None

    def _say(self) -> None:
        self._tell(ModelsFrame(list(self._held.values())))


# The models of a runner whose lanes share them: one moves at a time, and none goes
# while a lane uses it.


class SharedModelSlots(ModelSlots):
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
            self._tell(ModelLoadFrame(name))
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

    def leak_wait_s(self) -> float | None:
        wait_s = super().leak_wait_s()
        return None if wait_s is None else max(wait_s, CALM_S)

    def leak(self) -> MemoryLeakFrame | None:
        """Only when no lane is at work can anybody tell what is lost."""
        with self._changed:
            is_calm = not self._is_moving and not self._users.total()
            return super().leak() if is_calm else None

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
            self._tell(ModelLoadFrame(name))
            with self._changed:
                if self._changed.wait_for(is_so, AGAIN_S):
                    return

    def _tell_here(self, frame: Frame) -> None:
        tell = getattr(self._lane, "tell", None)
        if tell is None:
            frame.lane, tell = NO_LANE, self._tell_all
        tell(frame)
