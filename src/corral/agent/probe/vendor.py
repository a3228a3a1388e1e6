"""Which vendors there are, and whether it is worth asking one on this machine.

The look beforehand reads what the kernel has in memory and cannot hang; it keeps
machines without GPUs free of probe processes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from corral.agent.probe import sysfs
from corral.agent.probe.amd import AmdProbe
from corral.agent.probe.amd_sysfs import VENDOR as AMD
from corral.agent.probe.apple import AppleProbe
from corral.agent.probe.base import Probe
from corral.agent.probe.intel import VENDOR as INTEL
from corral.agent.probe.intel import IntelProbe
from corral.agent.probe.nvidia import NvidiaProbe
from corral.agent.probe.windows import WindowsProbe

NVIDIA = "0x10de"
# The driver at work, Windows' own below it, and boards whose GPU is not on a bus.
_NVIDIA_FILES = ("nvidiactl", "dxg", "nvhost-gpu", "nvgpu")
Make = Callable[[Path, int], Probe]

# Each from the root of the file system and the number of ways to leave out.
VENDORS: dict[str, Make] = {
    "nvidia": lambda root, skip: NvidiaProbe(),
    "amd": lambda root, skip: AmdProbe(root / "sys", skip=skip),
    "intel": lambda root, skip: IntelProbe(root / "sys"),
    "apple": lambda root, skip: AppleProbe(),
    "windows": lambda root, skip: WindowsProbe(),
}
# How many ways a vendor has: one that hangs is left out the next time.
WAYS = {"amd": 3}


def likely(root: Path = Path("/")) -> list[str]:
    """The vendors whose probe may find something here."""
    if sys.platform == "darwin":
        return ["apple"]
    if sys.platform == "win32":
        return ["nvidia", "windows"]
    sys_root, dev = root / "sys", root / "dev"
    found = []
    has_file = any((dev / name).exists() for name in _NVIDIA_FILES)
    if has_file or sysfs.has_display(NVIDIA, sys_root):
        found.append("nvidia")
    if (dev / "kfd").exists() or sysfs.has_display(AMD, sys_root):
        found.append("amd")
    if sysfs.has_display(INTEL, sys_root):
        found.append("intel")
    return found
