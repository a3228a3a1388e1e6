"""The models one runner keeps in memory: loaded before use, the least used unloaded."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from corral.worker.gpu_memory import GpuMemory

ROOM = 5


class Shelf:
    """Calls a worker's model hooks, so that at most `room` models are held."""

    def __init__(
        self, worker: Any, room: int = ROOM, memory: GpuMemory | None = None
    ) -> None:
        self._worker = worker
        self._room = room
        self._memory = memory or GpuMemory()
        self._held: OrderedDict[str, None] = OrderedDict()

    def need(self, name: str) -> None:
        """Have `name` loaded; what the hooks raise fails the task that needs it."""
        if name in self._held:
            self._held.move_to_end(name)
            return
        while len(self._held) >= self._room:
            oldest, _ = self._held.popitem(last=False)
            self._worker.unload_model(oldest)
            self._memory.give_back(oldest)
        self._worker.load_model(name)
        self._memory.take(name, self._size_mb(name))
        self._held[name] = None

    def _size_mb(self, name: str) -> float | None:
        """What the worker says a model takes; it may be a class without that hook."""
        ask = getattr(self._worker, "model_memory_mb", None)
        return ask(name) if callable(ask) else None
