"""Intel graphics from the kernel: /sys/class/drm, drivers i915 and xe.

The kernel tells nobody but root how much memory of a card is in use, so that is left
open rather than guessed.
"""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from corral.agent.probe import sysfs
from corral.agent.probe.base import MIB, ProbeResult, free_mb
from corral.core.nodes.gpu import Gpu

VENDOR = "0x8086"
# Graphics within an Intel processor have had this place on every one of them.
_INSIDE = "0000:00:02."
_PREFETCHABLE = 0x2000


class IntelProbe:
    def __init__(self, root: Path = sysfs.SYS) -> None:
        self._root = root
        self._energy: dict[str, tuple[float, float]] = {}

    def read(self) -> ProbeResult:
        cards = sysfs.cards(VENDOR, self._root)
        found = tuple(self._gpu(card, index) for index, card in enumerate(cards))
        return ProbeResult(found, None if found else "no Intel card with a driver")

    def close(self) -> None:
        self._energy.clear()

    def _gpu(self, card: sysfs.DrmCard, index: int) -> Gpu:
        is_integrated = card.pci_address.startswith(_INSIDE)
        total, used = _machine() if is_integrated else (_vram_mb(card), None)
        return Gpu(
            id=card.pci_address,
            vendor="intel",
            name=sysfs.product_name(card, self._root) or f"Intel {card.product}",
            vendor_index=index,
            pci_address=card.pci_address,
            memory_total_mb=total,
            memory_used_mb=used,
            memory_free_mb=free_mb(total, used),
            temperature_c=card.sensor("temp1_input", 1000)
            or card.sensor("temp2_input", 1000),
            power_w=self._power(card),
            driver=sysfs.driver(card),
            is_integrated=is_integrated,
            shares_memory=is_integrated,
        )

    def _power(self, card: sysfs.DrmCard) -> float | None:
        """From two readings of the energy meter; none at the first."""
        joules = card.sensor("energy1_input", 1e6)
        if joules is None:
            return card.sensor("power1_input", 1e6)
        now = time.monotonic()
        at, before = self._energy.get(card.pci_address, (now, joules))
        self._energy[card.pci_address] = (now, joules)
        if now <= at or joules < before:
            return None
        return (joules - before) / (now - at)


def _machine() -> tuple[float, float]:
    memory = psutil.virtual_memory()
    return memory.total / MIB, (memory.total - memory.available) / MIB


def _vram_mb(card: sysfs.DrmCard) -> float | None:
    told = sysfs.read(card.folder / "lmem_total_bytes")
    if told is None:
        told = sysfs.read(card.device / "tile0" / "physical_vram_size_bytes")
    if told is not None and told.isdigit():
        return int(told) / MIB
    return _largest_window_mb(card)


def _largest_window_mb(card: sysfs.DrmCard) -> float | None:
    """What of its memory the bus shows: all of it where the window can be resized."""
    sizes = [0]
    for line in (sysfs.read(card.device / "resource") or "").splitlines():
        start, end, flags = (int(word, 16) for word in line.split())
        if end > start and flags & _PREFETCHABLE:
            sizes.append(end - start + 1)
    return max(sizes) / MIB or None
