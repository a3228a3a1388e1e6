"""Graphics cards as the Linux kernel lists them under /sys, whatever their vendor.

Reads files only; a file that is missing or refuses leaves its field empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SYS = Path("/sys")
_CARD = re.compile(r"card(\d+)")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.I)
# Where distributions keep the lists of names.
_NAMES = ("usr/share/libdrm/amdgpu.ids",)
_PCI_NAMES = ("usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids")


@dataclass(frozen=True, slots=True)
class DrmCard:
    """A card of /sys/class/drm; `device` is its folder on the bus."""

    number: int
    folder: Path
    device: Path
    pci_address: str
    vendor: str
    product: str
    revision: str

    def hwmon(self, name: str) -> str | None:
        """A sensor file of this card, from whichever monitor has it."""
        for folder in sorted((self.device / "hwmon").glob("hwmon*")):
            if (value := read(folder / name)) is not None:
                return value
        return None

    def sensor(self, name: str, scale: float) -> float | None:
        value = self.hwmon(name)
        return int(value) / scale if value and value.lstrip("-").isdigit() else None

    def amount(self, name: str) -> int | None:
        value = read(self.device / name)
        return int(value) if value and value.isdigit() else None


def read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def cards(vendor: str, root: Path = SYS) -> Iterator[DrmCard]:
    """The cards whose PCI vendor is this (`0x1002`), in the kernel's order."""
    folders = (root / "class" / "drm").glob("card*")
    numbered = [(found, f) for f in folders if (found := _CARD.fullmatch(f.name))]
    for found, folder in sorted(numbered, key=lambda pair: int(pair[0][1])):
        device = folder / "device"
        if read(device / "vendor") != vendor:
            continue
        address = _address(device)
        if address is not None:
            yield DrmCard(
                int(found[1]),
                folder,
                device,
                address,
                vendor,
                read(device / "device") or "",
                read(device / "revision") or "",
            )


def has_display(vendor: str, root: Path = SYS) -> bool:
    """Is there a card or accelerator of this vendor on the bus, driver or not?"""
    for device in (root / "bus" / "pci" / "devices").glob("*"):
        kind = read(device / "class") or ""
        if kind.startswith(("0x03", "0x12")) and read(device / "vendor") == vendor:
            return True
    return False


def _address(device: Path) -> str | None:
    for line in (read(device / "uevent") or "").splitlines():
        key, _, value = line.partition("=")
        if key == "PCI_SLOT_NAME":
            return value.lower()
    name = device.resolve().name
    return name.lower() if _ADDRESS.fullmatch(name) else None


def driver(card: DrmCard) -> str | None:
    """The kernel driver and, where it says one, its version."""
    for line in (read(card.device / "uevent") or "").splitlines():
        key, _, value = line.partition("=")
        if key == "DRIVER":
            version = read(card.device / "driver" / "module" / "version")
            return f"{value} {version}" if version else value
    return None


def product_name(card: DrmCard, root: Path = SYS) -> str | None:
    """The card's name from the lists on this machine."""
    base = root.parent
    for place in _NAMES:
        if found := _in_amd_list(read(base / place) or "", card):
            return found
    for place in _PCI_NAMES:
        if found := _in_pci_list(read(base / place) or "", card):
            return found
    return None


def _in_amd_list(names: str, card: DrmCard) -> str | None:
    key = card.product.removeprefix("0x").lower()
    revision = card.revision.removeprefix("0x").lower()
    for line in names.splitlines():
        parts = [part.strip() for part in line.split(",", 2)]
        if len(parts) == 3 and [p.lower() for p in parts[:2]] == [key, revision]:
            return parts[2]
    return None


def _in_pci_list(names: str, card: DrmCard) -> str | None:
    vendor, product = (
        word.removeprefix("0x").lower() for word in (card.vendor, card.product)
    )
    is_here = False
    for line in names.splitlines():
        if line.startswith(vendor + " "):
            is_here = True
        elif is_here and line.startswith(f"\t{product} "):
            return line.strip().split("  ", 1)[-1]
        elif is_here and line and not line.startswith(("\t", "#")):
            return None
    return None
