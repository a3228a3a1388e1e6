"""AMD cards: by amdsmi where ROCm brings it, else its tools, else the kernel.

Whatever tells of a card, the kernel fills what was left out, so that a card has the
same id and the same kind by each way.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from corral.agent.probe import amd_sysfs, amd_tool, sysfs
from corral.agent.probe.base import MIB, ProbeResult, free_mb, number, text
from corral.core.nodes.gpu import Gpu, GpuProcess


class AmdProbe:
    """`skip` leaves out the first ways, which hung before: the library, the tools."""

    def __init__(
        self, root: Path = sysfs.SYS, library: str = "amdsmi", skip: int = 0
    ) -> None:
        self._root = root
        self._skip = skip
        self._name = library
        self._library: ModuleType | None = None

    def read(self) -> ProbeResult:
        known = amd_sysfs.read(self._root)
        cards = self._by_library() if self._skip < 1 else []
        if not cards and self._skip < 2:
            cards = _by_tool()
        cards = cards or known
        found = tuple(_completed(cards, known))
        return ProbeResult(found, None if found else "no AMD card with a driver")

    def close(self) -> None:
        if self._library is not None:
            self._library.amdsmi_shut_down()
            self._library = None

    def _by_library(self) -> list[Gpu]:
        library = self._opened()
        if library is None:
            return []
        try:
            handles = library.amdsmi_get_processor_handles()
        except library.AmdSmiException:
            return []
        return [_card(library, handle, index) for index, handle in enumerate(handles)]

    def _opened(self) -> ModuleType | None:
        if self._library is None:
            try:
                library = importlib.import_module(self._name)
            except (ImportError, OSError, LookupError, AttributeError):
                # All of these, depending on its version, where ROCm is not.
                return None
            try:
                library.amdsmi_init()
            except library.AmdSmiException:
                return None
            self._library = library
        return self._library


def _completed(cards: list[Gpu], known: list[Gpu]) -> Iterator[Gpu]:
    for card, gaps in amd_sysfs.complete(cards, known):
        changes: dict[str, Any] = dict(gaps)
        yield replace(card, **changes)


def _by_tool() -> list[Gpu]:
    if shutil.which("amd-smi"):
        told = [amd_tool.run(argv) for argv in amd_tool.AMD_SMI]
        if found := amd_tool.read_amd_smi(*told):
            return found
    if shutil.which("rocm-smi"):
        return amd_tool.read_rocm_smi(amd_tool.run(amd_tool.ROCM_SMI))
    return []


def _card(library: ModuleType, handle: Any, index: int) -> Gpu:
    def ask(question: str, *about: Any) -> Any:
        """None for what this card does not tell."""
        try:
            return getattr(library, question)(handle, *about)
        except (library.AmdSmiException, AttributeError):
            return None

    asic = ask("amdsmi_get_gpu_asic_info") or {}
    memory = ask("amdsmi_get_gpu_vram_usage") or {}
    driver = ask("amdsmi_get_gpu_driver_info") or {}
    power = ask("amdsmi_get_power_info") or {}
    address = (text(ask("amdsmi_get_gpu_device_bdf")) or "").lower() or None
    total, used = number(memory.get("vram_total")), number(memory.get("vram_used"))
    target = text(asic.get("target_graphics_version"))
    is_integrated = target in amd_sysfs.INTEGRATED
    serial = amd_sysfs.serial_id(text(asic.get("asic_serial")))
    words = (text(driver.get("driver_name")), text(driver.get("driver_version")))
    return Gpu(
        id=serial or address or f"amd-{index}",
        vendor="amd",
        name=text(asic.get("market_name")) or "AMD GPU",
        vendor_index=index,
        pci_address=address,
        memory_total_mb=total,
        memory_used_mb=used,
        memory_free_mb=free_mb(total, used),
        utilization_percent=number(
            (ask("amdsmi_get_gpu_activity") or {}).get("gfx_activity")
        ),
        temperature_c=_temperature(library, ask),
        power_w=number(power.get("current_socket_power"))
        or number(power.get("average_socket_power")),
        driver=" ".join(word for word in words if word) or None,
        compute=target,
        is_integrated=is_integrated,
        shares_memory=is_integrated,
        processes=tuple(_processes(ask("amdsmi_get_gpu_process_list") or ())),
    )


def _temperature(library: ModuleType, ask: Callable[..., Any]) -> float | None:
    now = library.AmdSmiTemperatureMetric.CURRENT
    for name in ("HOTSPOT", "EDGE"):
        sensor = getattr(library.AmdSmiTemperatureType, name)
        if value := number(ask("amdsmi_get_temp_metric", sensor, now)):
            return value
    return None


def _processes(rows: Any) -> Iterator[GpuProcess]:
    for row in rows:
        # Older versions answer with handles here.
        if isinstance(row, dict) and row.get("pid"):
            used = number((row.get("memory_usage") or {}).get("vram_mem"))
            memory = None if used is None else used / MIB
            yield GpuProcess(int(row["pid"]), text(row.get("name")) or "", memory)
