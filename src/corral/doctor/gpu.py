"""GPUs: each card, and for cards that are not seen, why and what to do.

Every vendor's probe is asked once, side by side; the kernel shows the rest.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from corral.agent.gpu_policy import GpuPolicy
from corral.agent.probe import sysfs
from corral.agent.probe.amd_sysfs import VENDOR as AMD_ID
from corral.agent.probe.base import ProbeResult
from corral.agent.probe.intel import VENDOR as INTEL_ID
from corral.agent.probe.probe_process import ProbeChild, ProbeReading
from corral.agent.probe.simulated import SimulatedProbe
from corral.agent.probe.vendor import NVIDIA as NVIDIA_ID
from corral.agent.probe.vendor import WAYS, likely
from corral.agent.watch.gpus import with_owners
from corral.core.nodes.gpu import Gpu, arrange, is_called
from corral.doctor.check import Check, CheckResult, begin, ok, problem, warn
from corral.doctor.role import Role

if TYPE_CHECKING:
    from corral.settings import Settings

NAME = "gpu"
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
_NONE_WANTED = "CORRAL_GPU_DEVICES=none says that none is wanted"
ROOT = Path("/")
_VENDOR_OF = {NVIDIA_ID: NVIDIA, AMD_ID: AMD, INTEL_ID: INTEL}
_SHOWN = ("nvidiactl", "nvidia[0-9]*", "kfd", "dri/renderD*")
_CONTAINER = (".dockerenv", "run/.containerenv")
_SLACK_S = 3.0
_PROBE_S = 5.0


def check(config: Settings, role: Role) -> Check:
    policy = GpuPolicy(config.gpu_devices, config.simulated_gpus, timeout_s=_PROBE_S)
    name = config.node_name or role.node_name
    state = role.state
    has_agent = state is None or not state.is_running or "agent" in state.children

    def run() -> Iterator[CheckResult]:
        from corral.process.spawn import child_environment

        ledger = role.folder.agents / name / "simulated"
        environment = child_environment(os.environ, "")
        return judge(look(policy, name, ledger, environment, is_needed=has_agent))

    return Check(NAME, run, timeout_s(policy) + 5.0)


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


@dataclass(frozen=True, slots=True)
class GpuFact:
    """What the probes said: cards, and why a vendor's cannot be read.

    `devices` is the setting: None for all, empty for none. `is_needed` is false on a
    machine that runs no agent.
    """

    cards: Sequence[Gpu]
    faults: Mapping[str, str]
    scene: KernelFact
    devices: tuple[str, ...] | None = None
    is_needed: bool = True


def timeout_s(policy: GpuPolicy, root: Path = ROOT) -> float:
    """How long `look` takes at most: a vendor with several ways may need each."""
    ways = max((WAYS.get(vendor, 1) for vendor in likely(root)), default=0)
    return ways * (policy.timeout_s + 1.0) + _SLACK_S


def look(
    policy: GpuPolicy,
    node: str,
    ledger: Path,
    environment: Mapping[str, str] | None = None,
    root: Path = ROOT,
    *,
    is_needed: bool = True,
) -> GpuFact:
    """Every card there is. A vendor that hangs hides no other vendor's cards."""
    asked = {
        vendor: begin(partial(_ask, vendor, policy, environment, root), vendor)
        for vendor in likely(root)
    }
    limit_s = timeout_s(policy, root)
    readings = {vendor: _reading(future, limit_s) for vendor, future in asked.items()}
    found: list[Gpu] = []
    faults: dict[str, str] = {}
    for vendor, reading in readings.items():
        finding = reading.finding or ProbeResult()
        found += finding.gpus
        if not finding.gpus:
            faults[vendor] = reading.fault or finding.absent or "it found no card"
    if policy.simulated:
        found += SimulatedProbe(policy.simulated, node, ledger).read().gpus
    cards = arrange(with_owners(found), policy.devices)
    return GpuFact(cards, faults, scene(root), policy.devices, is_needed)


def _ask(
    vendor: str,
    policy: GpuPolicy,
    environment: Mapping[str, str] | None,
    root: Path,
) -> ProbeReading:
    child = ProbeChild(vendor, policy.timeout_s, environment, root)
    try:
        return child.ask()
    finally:
        child.close()


def _reading(future: Future[ProbeReading], limit_s: float) -> ProbeReading:
    try:
        error = future.exception(limit_s)
    except TimeoutError:
        return ProbeReading(fault=f"it did not answer within {limit_s:g} s")
    return ProbeReading(fault=str(error)) if error else future.result()


def scene(root: Path = ROOT) -> KernelFact:
    return KernelFact(
        tuple(_cards(root)),
        tuple(_files(root)),
        frozenset(_loaded(root)),
        any((root / name).exists() for name in _CONTAINER),
        _user(),
    )


def _cards(root: Path) -> Iterator[BusCard]:
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        kind = sysfs.read(device / "class") or ""
        vendor = _VENDOR_OF.get(sysfs.read(device / "vendor") or "")
        if vendor and kind.startswith(("0x03", "0x12")):
            driver = device / "driver"
            name = driver.resolve().name if driver.exists() else None
            yield BusCard(device.name, vendor, name)


def _files(root: Path) -> Iterator[DeviceFile]:
    for shape in _SHOWN:
        for path in sorted((root / "dev").glob(shape)):
            name = f"/{path.relative_to(root)}"
            yield DeviceFile(name, os.access(path, os.R_OK | os.W_OK), _group(path))


def _group(path: Path) -> str:
    try:
        return path.group()
    except (KeyError, OSError, NotImplementedError):
        return ""


def _loaded(root: Path) -> Iterator[str]:
    for line in (sysfs.read(root / "proc/modules") or "").splitlines():
        yield line.partition(" ")[0]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def judge(told: GpuFact) -> Iterator[CheckResult]:
    yield from (_card(card) for card in told.cards)
    if told.devices == ():
        yield ok(NAME, f"none is offered, as CORRAL_GPU_DEVICES wants ({_many(told)})")
        return
    if not told.is_needed:
        yield ok(NAME, "no agent runs here, so that none is needed")
        return
    yield from _faults(told)
    yield from _closed(told)
    yield from _named(told)
    yield from _none(told)


def _many(told: GpuFact) -> str:
    return f"{len(told.cards)} seen"


def _card(card: Gpu) -> CheckResult:
    words = [card.name, card.id, _memory(card)]
    words += [f"driver {card.driver}"] if card.driver else []
    words += ["simulated"] if card.is_simulated else []
    words += ["integrated"] if card.is_integrated else []
    words.append("offered" if card.is_offered else "not offered")
    found = f"{card.index}: {', '.join(words)}"
    facts = asdict(card)
    # Only its agent knows that; the manager tells it of every node.
    facts.pop("quarantine", None)
    fix = "see 'dmesg', and reset or restart the machine if it stays so"
    if card.error:
        return problem(NAME, f"{found}: {card.error}", fix, **facts)
    if errors := [f"{kind} {n}" for kind, n in card.errors.items() if n]:
        found += f"; hardware errors: {', '.join(errors)}"
        return warn(NAME, found, fix, **facts)
    return ok(NAME, found, **facts)


def _memory(card: Gpu) -> str:
    if card.memory_total_mb is None:
        return "memory unknown"
    text = f"{card.memory_total_mb:.0f} MiB"
    if card.memory_used_mb is None or card.memory_free_mb is None:
        return text
    return f"{text}, {card.memory_used_mb:.0f} used, {card.memory_free_mb:.0f} free"


def _faults(told: GpuFact) -> Iterator[CheckResult]:
    has_other = any(card.is_offered for card in told.cards)
    for vendor, said in told.faults.items():
        found, fix = reason(vendor, said, told.scene)
        # Nearly every processor of theirs has one that nobody means to compute on.
        is_minor = vendor == "intel" and has_other
        make = warn if is_minor else problem
        yield make(NAME, " ".join(found.split()), fix, vendor=vendor)


def _closed(told: GpuFact) -> Iterator[CheckResult]:
    """Cards that are seen, but whose files this user may not open."""
    for vendor in sorted({card.vendor for card in told.cards} - set(told.faults)):
        if closed := closed_files(vendor, told.scene):
            yield problem(NAME, *closed, vendor=vendor)


def _named(told: GpuFact) -> Iterator[CheckResult]:
    for device in told.devices or ():
        if not any(is_called(card, device) for card in told.cards):
            found = f"CORRAL_GPU_DEVICES names {device}, which is not here"
            yield problem(NAME, found, "correct it; the cards found are listed above")


def _none(told: GpuFact) -> Iterator[CheckResult]:
    if any(card.is_offered for card in told.cards) or told.faults:
        return
    if told.cards:
        if told.devices is None and all(card.is_integrated for card in told.cards):
            found = "no card is offered: integrated ones are not unless named"
            yield warn(NAME, found, f"CORRAL_GPU_DEVICES=0 offers it; {_NONE_WANTED}")
        return
    fix = f"{_NONE_WANTED}; CORRAL_SIMULATED_GPUS=1x8GB makes one up"
    if told.scene.is_container:
        fix = f"give this container its devices (--gpus all); {fix}"
    yield problem(NAME, "no GPU is on this machine", fix)


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
