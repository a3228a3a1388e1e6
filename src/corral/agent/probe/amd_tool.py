"""AMD cards from the JSON of `amd-smi` and `rocm-smi`, whichever is installed.

Both have changed their shapes over the years; all known ones are read.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from corral.agent.probe.amd_sysfs import INTEGRATED, serial_id
from corral.agent.probe.base import MIB, free_mb, number, text
from corral.core.nodes.gpu import Gpu, GpuProcess

AMD_SMI = (
    ("amd-smi", "static", "--json"),
    ("amd-smi", "metric", "--json"),
    ("amd-smi", "process", "--json"),
)
ROCM_SMI = (
    "rocm-smi",
    "--showproductname",
    "--showbus",
    "--showuniqueid",
    "--showmeminfo",
    "vram",
    "--showuse",
    "--showtemp",
    "--showpower",
    "--showdriverversion",
    "--json",
)
_SCALE = {"B": 1 / MIB, "KB": 1 / 1024, "MB": 1.0, "GB": 1024.0}
_TIMEOUT_S = 20.0


def run(argv: Sequence[str]) -> Any:
    """The JSON a tool prints, whatever it prints before; None when it has none."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return first_json(done.stdout)


def first_json(output: str) -> Any:
    """The JSON value in what a tool printed; warnings may stand before it."""
    for found in re.finditer(r"^\s*[\[{]", output, re.M):
        try:
            return json.JSONDecoder().raw_decode(output[found.start() :].lstrip())[0]
        except ValueError:
            continue
    return None


def read_amd_smi(static: Any, metric: Any = None, process: Any = None) -> list[Gpu]:
    metrics = {row.get("gpu"): row for row in _rows(metric)}
    processes = {row.get("gpu"): row for row in _rows(process)}
    return [
        _from_amd_smi(row, metrics.get(row.get("gpu"), {}), processes)
        for row in _rows(static)
        if isinstance(row.get("asic"), Mapping)
    ]


def _rows(told: Any) -> list[Mapping[str, Any]]:
    """Newer versions put the list of cards under a name."""
    if isinstance(told, Mapping):
        told = told.get("gpu_data")
    rows = told if isinstance(told, list) else []
    return [row for row in rows if isinstance(row, Mapping)]


def _part(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = row.get(name)
    return found if isinstance(found, Mapping) else {}


def _from_amd_smi(
    row: Mapping[str, Any], metric: Mapping[str, Any], processes: Mapping[Any, Any]
) -> Gpu:
    asic, bus, vram = (_part(row, name) for name in ("asic", "bus", "vram"))
    memory, heat = _part(metric, "mem_usage"), _part(metric, "temperature")
    total = megabytes(memory.get("total_vram"))
    total = megabytes(vram.get("size")) if total is None else total
    used = megabytes(memory.get("used_vram"))
    address = (text(bus.get("bdf")) or "").lower() or None
    index = row.get("gpu")
    target = text(asic.get("target_graphics_version"))
    is_integrated = target in INTEGRATED
    hot = number(heat.get("hotspot"))
    return Gpu(
        id=serial_id(text(asic.get("asic_serial"))) or address or f"amd-{index}",
        vendor="amd",
        name=_amd_name(asic, _part(row, "board")),
        vendor_index=index if isinstance(index, int) else 0,
        pci_address=address,
        memory_total_mb=total,
        memory_used_mb=used,
        memory_free_mb=free_mb(total, used),
        utilization_percent=number(_part(metric, "usage").get("gfx_activity")),
        temperature_c=number(heat.get("edge")) if hot is None else hot,
        power_w=number(_part(metric, "power").get("socket_power")),
        driver=_driver(_part(row, "driver")),
        compute=target,
        is_integrated=is_integrated,
        shares_memory=is_integrated,
        processes=tuple(_processes(processes.get(index, {}))),
    )


def _amd_name(asic: Mapping[str, Any], board: Mapping[str, Any]) -> str:
    market = text(asic.get("market_name"))
    if market and not market.startswith("0x"):
        return market
    return text(board.get("product_name")) or market or "AMD GPU"


def _driver(told: Mapping[str, Any]) -> str | None:
    words = [text(told.get("name")), text(told.get("version"))]
    return " ".join(word for word in words if word) or None


def megabytes(told: Any) -> float | None:
    """An amount with its unit; a bare number is already in MB."""
    value = number(told)
    unit = told.get("unit", "MB") if isinstance(told, Mapping) else "MB"
    return None if value is None else value * _SCALE.get(str(unit).upper(), 1.0)


def _processes(row: Mapping[str, Any]) -> Iterator[GpuProcess]:
    listed = row.get("process_list")
    for entry in listed if isinstance(listed, list) else []:
        info = entry.get("process_info", entry) if isinstance(entry, Mapping) else None
        if isinstance(info, Mapping) and (pid := number(info.get("pid"))):
            used = megabytes(_part(info, "memory_usage").get("vram_mem"))
            yield GpuProcess(int(pid), text(info.get("name")) or "", used)


def read_rocm_smi(told: Any) -> list[Gpu]:
    cards = told if isinstance(told, Mapping) else {}
    driver = _part(cards, "system").get("Driver version")
    found = (re.fullmatch(r"card(\d+)", str(name)) for name in cards)
    numbers = sorted(int(match[1]) for match in found if match)
    return [
        _from_rocm_smi(_part(cards, f"card{n}"), index, text(driver))
        for index, n in enumerate(numbers)
    ]


def _from_rocm_smi(card: Mapping[str, Any], index: int, driver: str | None) -> Gpu:
    # The case of the words differs between versions.
    told = {str(key).casefold(): value for key, value in card.items()}
    total = number(told.get("vram total memory (b)"))
    used = number(told.get("vram total used memory (b)"))
    total_mb = None if total is None else total / MIB
    used_mb = None if used is None else used / MIB
    address = (text(told.get("pci bus")) or "").lower() or None
    target = text(told.get("gfx version"))
    is_integrated = target in INTEGRATED
    return Gpu(
        id=serial_id(text(told.get("unique id"))) or address or f"amd-{index}",
        vendor="amd",
        name=_rocm_name(told),
        vendor_index=index,
        pci_address=address,
        memory_total_mb=total_mb,
        memory_used_mb=used_mb,
        memory_free_mb=free_mb(total_mb, used_mb),
        utilization_percent=number(told.get("gpu use (%)")),
        temperature_c=_first(told, "sensor junction", "sensor edge"),
        power_w=_first(told, "power (w)"),
        driver=driver,
        compute=target,
        is_integrated=is_integrated,
        shares_memory=is_integrated,
    )


def _rocm_name(told: Mapping[str, Any]) -> str:
    for key in ("card series", "card model", "device name"):
        word = text(told.get(key))
        if word and not word.startswith("0x"):
            return word
    return "AMD GPU"


def _first(told: Mapping[str, Any], *words: str) -> float | None:
    """The first number under a name with one of these words; limits do not count."""
    for word in words:
        for key, value in told.items():
            if word in key and not key.startswith("max"):
                return number(value)
    return None
