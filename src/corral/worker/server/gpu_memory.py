"""What servers take on the cards of this machine, as NVIDIA's driver tells it."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Collection, Iterator
from typing import Any

_MIB = 1024 * 1024


def processes_mb(pids: Collection[int]) -> float | None:
    """MB of these processes on all cards; None where nobody can tell.

    In a container the driver may know them by other numbers.
    """
    with _driver() as nvml:
        if nvml is None:
            return None
        try:
            found = list(_used(nvml, frozenset(pids)))
        except nvml.NVMLError:
            return None
    return sum(found) / _MIB if found else None


def cards_mb(cards: Collection[str]) -> float | None:
    """MB that all processes together have of these cards, by their ids."""
    with _driver() as nvml:
        if nvml is None or not cards:
            return None
        try:
            handles = [nvml.nvmlDeviceGetHandleByUUID(card) for card in cards]
            used = [int(nvml.nvmlDeviceGetMemoryInfo(each).used) for each in handles]
        except nvml.NVMLError:
            return None
    return sum(used) / _MIB


def _used(nvml: Any, pids: frozenset[int]) -> Iterator[int]:
    """Bytes of each of them on each card where it is seen."""
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        for row in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
            if row.pid in pids and row.usedGpuMemory is not None:
                yield int(row.usedGpuMemory)


@contextlib.contextmanager
def _driver() -> Iterator[Any]:
    """The driver's library; None where there is no such card."""
    nvml = importlib.import_module("pynvml")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()
