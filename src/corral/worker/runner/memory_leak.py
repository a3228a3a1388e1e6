"""Whether memory comes back when a model goes; a runner that lost some is worn.

Looked at are the cards where PyTorch uses some, else the memory of the process. What
seems to be lost is looked at once more when nothing runs: only then is it sure.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from corral.worker.protocol import MemoryLeakFrame
from corral.worker.runner.gpu_memory import GpuMemoryReading, read_memory, trim_memory

SHARE = 0.1
"""So much of a model may stay behind: allocators round up."""
LEAST_MB = 64.0
"""Less than this is nobody's loss: libraries and caches grow by it."""
CALM_S = 1.0
"""How long nothing has to come before a runner that lost memory says so."""
PATIENCE_S = 60.0
"""Where there is never such a moment, it says so between two orders."""

_now = time.monotonic


class Trim(Protocol):
    def __call__(self, *, is_thorough: bool) -> None: ...


@dataclass(slots=True)
class _Loss:
    """`due_mb` is what would be taken now if all had come back."""

    model: str
    size_mb: float
    due_mb: float
    since: float

    @property
    def tolerance_mb(self) -> float:
        return max(LEAST_MB, SHARE * self.size_mb)


class MemoryLeakCheck:
    """Follows the loads and unloads of one runner."""

    def __init__(
        self,
        read: Callable[[], GpuMemoryReading] = read_memory,
        trim: Trim = trim_memory,
    ) -> None:
        self._read = read
        self._trim = trim
        self._took: dict[str, float] = {}
        self._has_loaded = False
        self._loss: _Loss | None = None

    def loading(self) -> GpuMemoryReading:
        """To be asked before a load."""
        return self._read()

    def loaded(
        self, model: str, before: GpuMemoryReading, told_mb: float | None
    ) -> None:
        """What a model took: never more than was seen, nor than its class says.

        The first load brings libraries along: of a class that tells no size, nobody
        knows what of it is the model's.
        """
        grew_mb = self._read().used_since(before)
        if told_mb is None and not self._has_loaded:
            told_mb = 0.0
        self._has_loaded = True
        took_mb = grew_mb if told_mb is None else min(told_mb, grew_mb)
        self._took[model] = took_mb
        if self._loss is not None:
            self._loss.due_mb += took_mb

    def dropping(self, model: str) -> GpuMemoryReading | None:
        """To be asked before an unload; None where it is not worth a look."""
        if self._took.get(model, 0.0) < LEAST_MB:
            return None
        self._trim(is_thorough=False)
        return self._read()

    def dropped(self, model: str, before: GpuMemoryReading | None) -> None:
        """Trim what is kept for later, and look whether all has come back."""
        took_mb = self._took.pop(model, 0.0)
        if self._loss is not None:
            self._loss.due_mb -= took_mb
        if before is None:
            return
        if self._loss is None:
            due_mb = before.taken_mb - took_mb
            loss = _Loss(model, took_mb, due_mb, _now())
            if self._is_lost(loss, is_thorough=False) and self._is_lost(loss):
                self._loss = loss

    def _is_lost(self, loss: _Loss, *, is_thorough: bool = True) -> bool:
        return self._left_mb(loss, is_thorough=is_thorough) > loss.tolerance_mb

    def _left_mb(self, loss: _Loss, *, is_thorough: bool = True) -> float:
        self._trim(is_thorough=is_thorough)
        return self._read().taken_mb - loss.due_mb

    def wait_s(self) -> float | None:
        """How long nothing must come until `verdict` is to be asked; None for ever."""
        if self._loss is None:
            return None
        is_over = _now() - self._loss.since > PATIENCE_S
        return 0.0 if is_over else CALM_S

    def verdict(self) -> MemoryLeakFrame | None:
        """What is lost for sure, as nothing runs; asked once for each loss."""
        loss, self._loss = self._loss, None
        if loss is None:
            return None
        left_mb = self._left_mb(loss)
        if left_mb <= loss.tolerance_mb:
            return None
        return MemoryLeakFrame(loss.model, round(left_mb, 1), round(loss.size_mb, 1))
