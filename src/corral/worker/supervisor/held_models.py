"""What all runners of a worker have in memory, as one word for the manager.

The word has a number: reports and beats both carry it, and may overtake each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from corral.core.models.model import MemoryLeak
from corral.wire.orders import ModelInMemory, ModelInRunners, ModelsReport
from corral.worker.pool.runner_process import RunnerProcess


class RunnerModels:
    """Looks at the runners whenever it is asked. Safe to use from any thread."""

    def __init__(
        self,
        runners: Callable[[], Iterable[RunnerProcess]],
        leaks: Callable[[], tuple[int, MemoryLeak | None]] = lambda: (0, None),
    ) -> None:
        self._runners = runners
        self._leaks = leaks
        self._lock = threading.Lock()
        self._word = ModelsReport(0, [])
        self._said = 0

    def word(self) -> ModelsReport | None:
        """What is held now; None while there never was anything to say."""
        # Under the lock, so that nobody says later what he saw earlier.
        with self._lock:
            runners = [r for r in self._runners() if r.is_ready and not r.is_dead]
            held = _union(model for r in runners for model in r.models.values())
            told = {name: size for r in runners for name, size in r.sizes.items()}
            # A runner that is gone takes its models along, but sizes stay known.
            sizes = self._word.sizes | told
            restarts, worn = self._leaks()
            last = self._word
            if (held, sizes, restarts) != (last.held, last.sizes, last.restarts):
                number = last.number + 1
                self._word = ModelsReport(number, held, sizes, restarts, worn)
            return self._word if self._word.number else None

    def unsaid(self) -> ModelsReport | None:
        """The word, unless the manager has it already."""
        word = self.word()
        return word if word is not None and word.number > self._said else None

    def said(self, number: int) -> None:
        """The manager knows this word now."""
        with self._lock:
            self._said = max(self._said, number)


def _union(models: Iterable[ModelInMemory]) -> list[ModelInRunners]:
    found: dict[str, ModelInRunners] = {}
    for model in models:
        told: dict[str, Any] = asdict(model)
        if (other := found.get(model.name)) is not None:
            newest = max(model.loaded_at, other.loaded_at)
            told |= {"copies": other.copies + 1, "loaded_at": newest}
            if model.edition != other.edition:
                # Each will be told apart when it is next used.
                told["edition"] = ""
        found[model.name] = ModelInRunners(**told)
    return [found[name] for name in sorted(found)]
