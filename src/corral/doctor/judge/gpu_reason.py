"""Why a vendor's cards cannot be read or used, from what the kernel shows of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

NVIDIA, AMD, INTEL = "nvidia", "amd", "intel"
_DRIVERS = {NVIDIA: ("nvidia",), AMD: ("amdgpu",), INTEL: ("i915", "xe")}
_LABEL = {NVIDIA: "NVIDIA", AMD: "AMD", INTEL: "Intel"}
_FILES = {
    NVIDIA: ("/dev/nvidia",),
    AMD: ("/dev/kfd", "/dev/dri/renderD"),
    INTEL: ("/dev/dri/renderD",),
}
_GIVE = {
    NVIDIA: "--gpus all (Docker) or --device nvidia.com/gpu=all (Podman)",
    AMD: "--device /dev/kfd --device /dev/dri",
    INTEL: "--device /dev/dri",
}


@dataclass(frozen=True, slots=True)
class BusCard:
    """A card on the bus; `driver` is the kernel's driver that has it, if any."""

    address: str
    vendor: str
    driver: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """A file programs compute through; `is_open`: this user may read and write it."""

    path: str
    is_open: bool
    group: str = ""


@dataclass(frozen=True, slots=True)
class KernelFact:
    """What the kernel shows. `loaded` are the names of its loaded drivers."""

    cards: tuple[BusCard, ...] = ()
    files: tuple[DeviceFile, ...] = ()
    loaded: frozenset[str] = frozenset()
    is_container: bool = False
    user: str = ""


def reason(vendor: str, said: str, scene: KernelFact) -> tuple[str, str]:
    """What was found and what to do, for a vendor whose probe said why it failed."""
    label = _LABEL.get(vendor, vendor)
    low = said.lower()
    if "version mismatch" in low:
        found = f"{label}: the driver was updated, but the old one still runs"
        return found, "restart this machine"
    if "did not answer" in low or "hangs" in low:
        found = f"{label}: its library hangs ({said})"
        return found, "see 'dmesg' for a failed card; restart this machine"
    for found, fix in _bus(vendor, scene):
        return f"{label}: {found}", fix
    if closed := closed_files(vendor, scene):
        return closed
    if vendor == NVIDIA and "library" in low:
        found = f"{label}: the driver runs, its library libnvidia-ml.so.1 is not found"
        return found, _library_fix(scene)
    return f"{label}: {said}", f"see 'python -m corral.agent.probe {vendor} --once'"


def _library_fix(scene: KernelFact) -> str:
    if scene.is_container:
        return f"start the container with {_GIVE[NVIDIA]}, which brings it along"
    return "install the libraries of the same driver version (libnvidia-compute)"


def _bus(vendor: str, scene: KernelFact) -> Iterator[tuple[str, str]]:
    """What is wrong between the card and the kernel; the first is the one to mend."""
    wanted = _DRIVERS.get(vendor, ())
    cards = [card for card in scene.cards if card.vendor == vendor]
    for card in cards:
        if card.driver and card.driver.startswith("vfio"):
            found = f"{card.address} is given to virtual machines ({card.driver})"
            yield found, "take it back from vfio to use it here"
        elif card.driver and card.driver not in wanted:
            found = f"{card.address} is driven by {card.driver}, which cannot compute"
            yield found, f"install the {wanted[0]} driver, block {card.driver}, restart"
    is_driven = any(card.driver for card in cards) or scene.loaded & set(wanted)
    if cards and not is_driven:
        where = ", ".join(card.address for card in cards)
        on = " of the host" if scene.is_container else ""
        found = f"{where} is on the bus, but no driver is loaded"
        yield found, f"install the {wanted[0]} driver{on}, or 'modprobe {wanted[0]}'"


def closed_files(vendor: str, scene: KernelFact) -> tuple[str, str] | None:
    """What was found and what to do, when this user has no way to a card's files."""
    for start in _FILES.get(vendor, ()):
        files = [file for file in scene.files if file.path.startswith(start)]
        if not files and scene.is_container:
            found = f"{_LABEL[vendor]}: this container was not given {start}*"
            return found, f"start the container with {_GIVE[vendor]}"
        if files and not any(file.is_open for file in files):
            return _shut(vendor, files[0], scene.user)
    return None


def _shut(vendor: str, file: DeviceFile, user: str) -> tuple[str, str]:
    found = f"{_LABEL[vendor]}: {user or 'this user'} may not open {file.path}"
    if file.group and file.group != "root":
        fix = f"'sudo usermod -aG {file.group} {user}', then log in anew"
        return found, fix
    return found, "let a group of this user read and write it (a udev rule)"
