"""What models really take: measured before and after, never believed.

On cards it is what torch has allocated there, on the processor what the weights take
and what the process as a whole has.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from corral.worker.inference.load.batch_memory import Look, Peaks
from corral.worker.inference.load.device import MB, Device

_PROCESS = Path("/proc/self")
_RESET_PEAK = "5"


@dataclass(slots=True)
class ModelMemoryUse:
    """What one model takes, in MB.

    `size_mb` is what its load took, `peaks` what batches of it took on top; `left_mb`
    is what was not given back when it was last unloaded.
    """

    size_mb: float = 0.0
    before_mb: float = 0.0
    after_mb: float = 0.0
    left_mb: float = 0.0
    loads: int = 0
    """How often it was loaded."""
    peaks: Peaks = field(default_factory=Peaks)

    @property
    def peak_mb(self) -> float:
        return max(self.peaks.told().values(), default=0.0)


class MemoryMeter:
    """Reads the memory of this process on `devices`."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._cards = [d.index for d in devices if d.is_cuda]
        self._process = psutil.Process()

    @property
    def reads_cards(self) -> bool:
        return bool(self._cards)

    def used_mb(self) -> float:
        """What this process has taken: of its cards, or as a whole."""
        if not self._cards:
            return float(self._process.memory_info().rss) / MB
        torch = sys.modules["torch"]
        return float(sum(map(torch.cuda.memory_allocated, self._cards))) / MB

    def held_mb(self) -> float:
        """The same, with what torch keeps around it: what others cannot have."""
        if not self._cards:
            return self.used_mb()
        torch = sys.modules["torch"]
        torch.cuda.empty_cache()
        return float(sum(map(torch.cuda.memory_reserved, self._cards))) / MB

    def free_mb(self, fraction: float) -> dict[int, float]:
        """By card: what we may still take of it, of our share and of what is free."""
        torch = sys.modules["torch"]
        free = {}
        for card in self._cards:
            unused, total = torch.cuda.mem_get_info(card)
            ours = torch.cuda.memory_reserved(card)
            # What torch keeps for itself between batches is free to us.
            kept = ours - torch.cuda.memory_allocated(card)
            share = total * fraction - ours
            free[card] = max(min(float(unused), share) + kept, 0.0) / MB
        return free

    def cap(self, fraction: float) -> None:
        """Have torch itself refuse what goes over our share of each card."""
        for card in self._cards:
            sys.modules["torch"].cuda.set_per_process_memory_fraction(fraction, card)

    def trim(self) -> None:
        """Give back what nobody uses any more; looking for it takes a while."""
        gc.collect()
        if self._cards:
            torch = sys.modules["torch"]
            torch.cuda.empty_cache()

    @contextmanager
    def watch(self, note: Callable[[float], None]) -> Iterator[Look]:
        """Note the most that is taken meanwhile, on top of what was before."""
        before = self.used_mb()

        def look() -> None:
            note(max(self._peak_mb() - before, 0.0))

        self._reset_peak()
        try:
            yield look
        finally:
            look()

    def _reset_peak(self) -> None:
        for card in self._cards:
            sys.modules["torch"].cuda.reset_peak_memory_stats(card)
        if not self._cards:
            with suppress(OSError):
                (_PROCESS / "clear_refs").write_text(_RESET_PEAK, encoding="ascii")

    def _peak_mb(self) -> float:
        if not self._cards:
            return max(self.used_mb(), _process_peak_mb())
        torch = sys.modules["torch"]
        return float(sum(map(torch.cuda.max_memory_allocated, self._cards))) / MB


def _process_peak_mb() -> float:
    """The most this process had since the last reset; 0 where the system says nothing.

    Only where it can be reset: else it would be the most it ever had.
    """
    with suppress(OSError, ValueError, IndexError):
        if (_PROCESS / "clear_refs").exists():
            for line in (_PROCESS / "status").read_text(encoding="utf-8").splitlines():
                if line.startswith("VmHWM:"):
                    return float(line.split()[1]) / 1024
    return 0.0
