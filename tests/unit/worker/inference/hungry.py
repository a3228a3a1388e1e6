"""`python -m tests.unit.worker.inference.hungry SIZE...`: the peaks of such batches.

A process of its own: all of it is measured, and what others give back in the middle of
a batch would be taken for the batch's.
"""

from __future__ import annotations

import json
import mmap
import sys
from typing import Any

from corral.worker.inference.batching import BatchLimits, ModelSpeed, run_all
from corral.worker.inference.call import ModelCall
from corral.worker.inference.kind import ModelKind
from corral.worker.inference.load.batch_memory import BatchMemory, Peaks
from corral.worker.inference.load.device import CPU
from corral.worker.inference.load.memory import MemoryMeter
from corral.worker.inference.request import Generate

EACH_MB = 40


class Hungry:
    """Takes 40 MB for each call of a batch, and has them for a moment only."""

    kind = ModelKind.GENERATE

    def measure(self, call: ModelCall) -> int:
        return 10

    def likeness(self, call: ModelCall) -> object:
        return "all"

    def run(self, calls: list[ModelCall]) -> list[dict[str, Any]]:
        # Not by malloc, which may have some left over.
        with mmap.mmap(-1, (EACH_MB << 20) * len(calls)) as taken:
            for place in range(0, len(taken), mmap.PAGESIZE):
                taken[place] = 1
        return [{} for _ in calls]

    def weights_mb(self) -> float:
        return 0.0

    def unload(self) -> None:
        return None


def main(sizes: list[int]) -> None:
    model, peaks = Hungry(), Peaks()
    gauge = BatchMemory(peaks, lambda: None, MemoryMeter([CPU]).watch)
    for count in sizes:
        calls = [ModelCall(Generate(prompt="a")) for _ in range(count)]
        run_all(model, calls, BatchLimits(), ModelSpeed(), lambda: None, gauge)
    json.dump(peaks.told(), sys.stdout)


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]])
