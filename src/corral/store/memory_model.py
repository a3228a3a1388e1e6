"""Models and pins in memory."""

from __future__ import annotations

from collections.abc import Sequence

from corral.core.models.model import KnownModel, Pin
from corral.store.memory_shelf import MemoryShelf


class MemoryModels(MemoryShelf):
    async def save_models(self, several: Sequence[KnownModel]) -> None:
        self._models |= {model.name: model for model in several}

    async def models(self) -> Sequence[KnownModel]:
        return [self._models[name] for name in sorted(self._models)]

    async def save_pin(self, pin: Pin) -> None:
        self._pins[pin.worker_id, pin.model] = pin

    async def delete_pin(self, worker_id: str, model: str) -> None:
        self._pins.pop((worker_id, model), None)

    async def pins(self) -> Sequence[Pin]:
        return [self._pins[place] for place in sorted(self._pins)]
