"""AMD cards from the kernel alone: /sys/class/drm and /sys/class/kfd.

The last way to them, and the first to tell which are part of a processor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from corral.agent.probe import sysfs
from corral.agent.probe.base import MIB, free_mb
from corral.core.nodes.gpu import Gpu, GpuProcess

VENDOR = "0x1002"
# The graphics targets that exist only as part of a processor.
INTEGRATED = frozenset(
    f"gfx{version}"
    for version in (
        *("902", "909", "90c", "1013", "1033", "1035", "1036", "1037"),
        *("1103", "1150", "1151", "1152", "1153"),
    )
)


_FILLED = ("compute", "driver", "power_w", "temperature_c", "errors", "processes")


@dataclass(frozen=True, slots=True)
class _ComputeNode:
    """A card as /sys/class/kfd has it, the compute side of the driver."""

    gpu_id: str
    target: str | None


def read(root: Path = sysfs.SYS) -> list[Gpu]:
    nodes = _nodes(root)
    return [
        _gpu(card, index, nodes.get(card.pci_address), root)
        for index, card in enumerate(sysfs.cards(VENDOR, root))
    ]


def serial_id(serial: str | None) -> str | None:
    """The id ROCm itself takes (`GPU-` and 16 digits), of any spelling of it."""
    try:
        value = int(serial or "", 16)
    except ValueError:
        return None
    return f"GPU-{value:016x}" if value else None


def _gpu(card: sysfs.DrmCard, index: int, node: _ComputeNode | None, root: Path) -> Gpu:
    target = node.target if node else None
    total = card.amount("mem_info_vram_total")
    used = card.amount("mem_info_vram_used")
    total_mb = None if total is None else total / MIB
    used_mb = None if used is None else used / MIB
    is_integrated = _is_integrated(card, target)
    busy = card.amount("gpu_busy_percent")
    return Gpu(
        id=serial_id(sysfs.read(card.device / "unique_id")) or card.pci_address,
        vendor="amd",
        name=_name(card, root),
        vendor_index=index,
        pci_address=card.pci_address,
        memory_total_mb=total_mb,
        memory_used_mb=used_mb,
        memory_free_mb=free_mb(total_mb, used_mb),
        utilization_percent=None if busy is None else float(busy),
        temperature_c=card.sensor("temp1_input", 1000),
        power_w=_power(card),
        driver=sysfs.driver(card),
        compute=target,
        is_integrated=is_integrated,
        shares_memory=is_integrated,
        errors=_errors(card),
        processes=tuple(_processes(root, node)) if node else (),
    )


def _errors(card: sysfs.DrmCard) -> dict[str, int]:
    """What each block of the card counted as uncorrected (`ue`), all together."""
    told = [sysfs.read(file) for file in card.device.glob("ras/*_err_count")]
    counts = [n for text in told for n in re.findall(r"^ue:\s*(\d+)", text or "", re.M)]
    return {"ras_uncorrected": sum(map(int, counts))} if counts else {}


def _name(card: sysfs.DrmCard, root: Path) -> str:
    told = sysfs.read(card.device / "product_name")
    return told or sysfs.product_name(card, root) or f"AMD {card.product}"


def _is_integrated(card: sysfs.DrmCard, target: str | None) -> bool:
    if target is not None:
        return target in INTEGRATED
    # Only processors have a northbridge, so only their sensors name its voltage.
    return card.hwmon("in1_label") == "vddnb"


def _power(card: sysfs.DrmCard) -> float | None:
    average = card.sensor("power1_average", 1e6)
    return card.sensor("power1_input", 1e6) if average is None else average


def _nodes(root: Path) -> dict[str, _ComputeNode]:
    found = {}
    for folder in (root / "class/kfd/kfd/topology/nodes").glob("*"):
        facts = _properties(sysfs.read(folder / "properties") or "")
        if facts.get("simd_count") and (place := facts.get("location_id")):
            where = (facts.get("domain", 0), place >> 8, place >> 3 & 31, place & 7)
            address = "{:04x}:{:02x}:{:02x}.{:x}".format(*where)
            gpu_id = sysfs.read(folder / "gpu_id") or ""
            found[address] = _ComputeNode(
                gpu_id, target(facts.get("gfx_target_version", 0))
            )
    return found


def _properties(lines: str) -> dict[str, int]:
    pairs = (line.split() for line in lines.splitlines())
    return {p[0]: int(p[1]) for p in pairs if len(p) == 2 and p[1].isdigit()}


def target(version: int) -> str | None:
    """`gfx90a` of 90010: two decimal digits each for minor and stepping."""
    if version < 10_000:
        return None
    major, rest = divmod(version, 10_000)
    return f"gfx{major}{rest // 100:x}{rest % 100:x}"


def _processes(root: Path, node: _ComputeNode) -> Iterator[GpuProcess]:
    for file in sorted((root / "class/kfd/kfd/proc").glob(f"*/vram_{node.gpu_id}")):
        used = sysfs.read(file)
        if file.parent.name.isdigit() and used and used.isdigit() and int(used):
            yield GpuProcess(int(file.parent.name), memory_mb=int(used) / MIB)


def complete(
    cards: list[Gpu], known: list[Gpu]
) -> Iterator[tuple[Gpu, Mapping[str, object]]]:
    """Each card, with what the kernel knows of it and the tool did not say."""
    by_address = {gpu.pci_address: gpu for gpu in known}
    for card in cards:
        same = by_address.get(card.pci_address)
        yield card, {} if same is None else _missing(card, same)


def _missing(card: Gpu, known: Gpu) -> dict[str, object]:
    gaps: dict[str, object] = {
        name: getattr(known, name)
        for name in _FILLED
        if not getattr(card, name) and getattr(known, name)
    }
    if card.memory_total_mb is None:
        for name in ("memory_total_mb", "memory_used_mb", "memory_free_mb"):
            gaps[name] = getattr(known, name)
    if card.utilization_percent is None:
        gaps["utilization_percent"] = known.utilization_percent
    if card.id == card.pci_address:
        gaps["id"] = known.id
    if known.is_integrated:
        gaps |= {"is_integrated": True, "shares_memory": True}
    return gaps
