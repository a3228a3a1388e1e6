"""What a runner's models take of the cards its worker was given.

Real cards show that by themselves. On simulated ones it is written down in the node's
ledger (docs/design/gpu.md), so that they fill up and empty as real ones do.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

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
