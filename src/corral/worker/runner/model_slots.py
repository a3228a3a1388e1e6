"""The models one runner keeps in memory: loaded before use, dropped when told to.

What to drop for which model is decided where orders are made; only a shelf that is full
all the same drops what was not used for longest.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from corral.worker.protocol import Frame, Held, Loading, Models, Worn
from corral.worker.runner.gpu_memory import GpuMemory
from corral.worker.runner.memory_leak import Wear

ROOM = 5
FACTS = ("device", "precision", "layers", "peaks")
"""What `model_facts` of a class may tell."""


class Shelf:
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
        self._held: OrderedDict[str, Held] = OrderedDict()
        self.wear = Wear()

    def need(self, name: str, edition: str = "") -> float:
        """Have `name` loaded; the seconds its load took, 0 when it was there.

        One of another edition is loaded anew. What the hooks raise fails the task that
        needs it.
        """
        if self._has(name, edition):
            self._held.move_to_end(name)
            return 0.0
        self._tell(Loading(name))
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

    def wear_s(self) -> float | None:
        """How long nothing must come until `worn` is to be asked; None for ever."""
        return self.wear.wait_s()

    def worn(self) -> Worn | None:
        """Memory that is lost for sure, as nothing runs."""
        return self.wear.verdict()

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
        before = self.wear.loading()
        began_at, began = time.time(), time.perf_counter()
        self._call("load_model", name)
        took_s = time.perf_counter() - began
        told = self._call("model_memory_mb", name)
        size_mb = float(told) if told is not None else None
        self._memory.take(name, size_mb)
        self.wear.loaded(name, before, size_mb)
        held = Held(name, size_mb, took_s, began_at + took_s, edition=edition)
        self._held[name] = self._with_facts(held)
        return took_s

    def _with_facts(self, held: Held) -> Held:
        told = self._call("model_facts", held.name)
        if not isinstance(told, Mapping):
            return held
        known = {name: told[name] for name in FACTS if name in told}
        return msgspec.convert(msgspec.structs.asdict(held) | known, Held)

    def _drop(self, name: str) -> None:
        # Whatever its hook does, it is not used again without another load.
        del self._held[name]
        before = self.wear.dropping(name)
        try:
            self._call("unload_model", name)
        finally:
            self._memory.give_back(name)
            self.wear.dropped(name, before)

    def _call(self, hook: str, name: str) -> Any:
        """A class need not have every hook."""
        call = getattr(self._worker, hook, None)
        return call(name) if callable(call) else None

    def _say(self) -> None:
        self._tell(Models(list(self._held.values())))
