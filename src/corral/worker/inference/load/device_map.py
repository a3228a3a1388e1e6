"""Where the weights of a model go: on one device, or spread over several.

A model that no single device has room for is split by accelerate: devices first, then
the machine's memory, then a folder on its disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from corral.worker.inference.errors import ModelOutOfMemory
from corral.worker.inference.load.device import CPU, Device

# Room for what a batch takes beside the weights.
SPARE = 1.1


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """`device` takes the inputs. With `max_memory` the weights are spread.

    Its keys are numbers of cards and cpu, its values MB.
    """

    device: Device
    dtype: str
    max_memory: Mapping[int | str, float] = field(default_factory=dict)
    offload_dir: str | None = None

    @property
    def is_spread(self) -> bool:
        return bool(self.max_memory)


@dataclass(frozen=True, slots=True)
class FreeMemory:
    """What may still be taken, in MB: by card, and of the machine's own memory.

    None where nobody limits it. `offload_dir` is a folder for what fits nowhere.
    """

    cards: Mapping[int, float] = field(default_factory=dict)
    machine_mb: float | None = None
    may_spread: bool = True
    offload_dir: str | None = None


def make_plan(
    name: str, need_mb: float, devices: Sequence[Device], dtype: str, room: FreeMemory
) -> DevicePlan:
    """The emptiest card that has room for the model, else as many as it takes.

    Raises:
        OutOfMemory: it fits nowhere.
    """
    if not room.cards:
        return _on_machine(name, need_mb, devices, dtype, room)
    by_room = sorted(devices, key=lambda d: -room.cards.get(d.index, 0.0))
    best = by_room[0]
    if need_mb * SPARE <= room.cards.get(best.index, 0.0):
        return DevicePlan(best, dtype)
    spread: dict[int | str, float] = {
        device.index: room.cards.get(device.index, 0.0) / SPARE for device in devices
    }
    spread["cpu"] = room.machine_mb or 0.0
    total = sum(spread.values())
    if not room.may_spread or (need_mb > total and room.offload_dir is None):
        raise _too_large(name, need_mb, total)
    return DevicePlan(best, dtype, spread, room.offload_dir)


def _on_machine(
    name: str, need_mb: float, devices: Sequence[Device], dtype: str, room: FreeMemory
) -> DevicePlan:
    device = devices[0] if devices else CPU
    if room.machine_mb is None or need_mb <= room.machine_mb:
        return DevicePlan(device, dtype)
    if room.offload_dir is None or device.kind != "cpu":
        raise _too_large(name, need_mb, room.machine_mb)
    return DevicePlan(
        device, dtype, {"cpu": max(room.machine_mb, 0.0)}, room.offload_dir
    )


def _too_large(name: str, need_mb: float, free_mb: float) -> ModelOutOfMemory:
    return ModelOutOfMemory(
        f"model {name} takes {need_mb:.1f} MB and only {free_mb:.1f} MB are free here"
    )
