"""Asks every vendor's probe once, side by side, and looks at what the kernel shows."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path

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
from corral.core.nodes.gpu import Gpu, arrange
from corral.doctor.examine import begin
from corral.doctor.judge.gpu import (
    AMD,
    INTEL,
    NVIDIA,
    BusCard,
    DeviceFile,
    GpuFact,
    KernelFact,
)

ROOT = Path("/")
_VENDOR_OF = {NVIDIA_ID: NVIDIA, AMD_ID: AMD, INTEL_ID: INTEL}
_FILES = ("nvidiactl", "nvidia[0-9]*", "kfd", "dri/renderD*")
_CONTAINER = (".dockerenv", "run/.containerenv")
_SLACK_S = 3.0


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
    for shape in _FILES:
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
