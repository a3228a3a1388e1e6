"""What a runner's models, and its tasks beside them, take of its worker's cards.

Real cards show that by themselves. On simulated ones it is written down in the node's
ledger (docs/design/gpu.md), so that they fill up and empty as real ones do.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CARDS = "CORRAL_GPUS"
LEDGER = "CORRAL_GPU_LEDGER"
_SIMULATED = "SIM-"


@contextlib.contextmanager
def hold(ledger: Path, gpu_id: str, memory_mb: float) -> Iterator[None]:
    """Take memory of a simulated GPU for this process, as a model would."""
    folder = ledger / gpu_id
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    draft = file.with_suffix(".draft")
    draft.write_text(f"{memory_mb}", encoding="ascii")
    draft.replace(file)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


class GpuMemory:
    """Memory of this process by name; on cards that are real it does nothing.

    `take` and `give_back` go around whatever loads something of a known size.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        names = environment.get(CARDS, "").split(",")
        self._cards = [name for name in names if name.startswith(_SIMULATED)]
        ledger = environment.get(LEDGER)
        self._ledger = Path(ledger) if ledger and self._cards else None
        self._taken: dict[str, contextlib.ExitStack] = {}

    def take(self, name: str, memory_mb: float | None) -> None:
        """Hold so much for `name`, an equal part of it on each card."""
        if self._ledger is None or not memory_mb or name in self._taken:
            return
        taken = contextlib.ExitStack()
        for card in self._cards:
            part_mb = memory_mb / len(self._cards)
            taken.enter_context(hold(self._ledger, card, part_mb))
        self._taken[name] = taken

    def give_back(self, name: str) -> None:
        taken = self._taken.pop(name, None)
        if taken is not None:
            taken.close()


class WorkingSet:
    """The most GPU memory a task took beside what was there when it began.

    PyTorch knows it; a class that does not use PyTorch may have `working_memory_mb`,
    which is asked after each task.
    """

    def __init__(self, worker: Any) -> None:
        ask = getattr(worker, "working_memory_mb", None)
        self._ask = ask if callable(ask) else None
        self._before: list[int] = []

    @property
    def is_known(self) -> bool:
        """Is there anybody to ask?"""
        return self._ask is not None or "torch" in sys.modules

    def begin(self) -> None:
        self._before = []
        cuda = _cuda() if self._ask is None else None
        if cuda is None:
            return
        for card in range(cuda.device_count()):
            cuda.reset_peak_memory_stats(card)
            self._before.append(cuda.memory_allocated(card))

    def end(self) -> float | None:
        """MB since `begin`; None where nobody can tell."""
        if self._ask is not None:
            told = self._ask()
            return None if told is None else max(0.0, float(told))
        cuda, before = _cuda(), self._before
        if cuda is None or not before:
            return None
        peaks = [cuda.max_memory_allocated(card) for card in range(len(before))]
        more = sum(peak - had for peak, had in zip(peaks, before, strict=True))
        return max(0.0, float(more) / 2**20)


@dataclass(frozen=True, slots=True)
class GpuMemoryReading:
    """What this process has: `taken_mb` is what others cannot have of it."""

    on_cards: bool
    used_mb: float
    taken_mb: float

    def used_since(self, before: GpuMemoryReading) -> float:
        """What came on top; all of it where cards were not in use before."""
        known = before.used_mb if before.on_cards == self.on_cards else 0.0
        return max(0.0, self.used_mb - known)


def read_memory() -> GpuMemoryReading:
    """Of its cards where PyTorch uses some, else of the process as a whole."""
    if (cuda := _cuda()) is None:
        # Late: most runners hold no models.
        import psutil

        rss_mb = float(psutil.Process().memory_info().rss) / 2**20
        return GpuMemoryReading(False, rss_mb, rss_mb)
    cards = range(cuda.device_count())
    used = sum(map(cuda.memory_allocated, cards))
    taken = sum(map(cuda.memory_reserved, cards))
    return GpuMemoryReading(True, float(used) / 2**20, float(taken) / 2**20)


def trim_memory(*, is_thorough: bool) -> None:
    """Give back what nobody uses any more, of cards and of the machine.

    Thorough is to look for garbage first, which takes half a second in a process that
    has loaded the usual libraries.
    """
    if is_thorough:
        gc.collect()
    if (cuda := _cuda()) is not None:
        cuda.empty_cache()
    elif is_thorough and sys.platform == "linux":
        # What was freed in small pieces stays with the C library until it is told.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def give_back_cached() -> None:
    """Let the card have what PyTorch keeps for later: it is somebody else's now."""
    if (cuda := _cuda()) is not None:
        gc.collect()
        cuda.empty_cache()


def _cuda() -> Any:
    """PyTorch's, once user code has used it; asking any sooner would start it."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None
