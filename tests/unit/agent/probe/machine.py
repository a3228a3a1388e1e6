"""A machine made of folders: /sys with cards on it, and libraries that misbehave."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SRC = HERE.parents[3] / "src"
NAVI21, RAPHAEL = ("0x73bf", "0xc1", 100300), ("0x164e", "0xc6", 100306)


def recorded(name: str) -> str:
    return (HERE / "recorded" / name).read_text(encoding="utf-8")


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name).write_text(f"{value}\n", encoding="utf-8")


@dataclass
class Machine:
    """`root` stands for `/`; `lib` comes before all other libraries."""

    root: Path
    cards: int = 0

    @property
    def lib(self) -> Path:
        return self.root / "lib"

    @property
    def environment(self) -> dict[str, str]:
        """No tools on the path but those put there; our sources and the stand-ins."""
        return {
            "PATH": str(self.root / "bin"),
            "PYTHONPATH": os.pathsep.join([str(self.lib), str(SRC)]),
            "STANDIN_NVML": str(self.lib / "nvml.json"),
        }

    def plug_nvidia(self, **told: Any) -> None:
        self.lib.mkdir(parents=True, exist_ok=True)
        draft = self.lib / "nvml.draft"
        draft.write_text(json.dumps(told), encoding="utf-8")
        draft.replace(self.lib / "nvml.json")
        code = (HERE / "standin_nvml.py").read_text(encoding="utf-8")
        (self.lib / "pynvml.py").write_text(code, encoding="utf-8")
        self._on_bus("0000:19:00.0", "0x10de", "0x2335")

    def add_library(self, name: str, code: str) -> None:
        self.lib.mkdir(parents=True, exist_ok=True)
        (self.lib / f"{name}.py").write_text(code, encoding="utf-8")

    def add_tool(self, name: str, script: str) -> None:
        tool = self.root / "bin" / name
        tool.parent.mkdir(parents=True, exist_ok=True)
        tool.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        tool.chmod(0o755)

    def plug_amd(
        self,
        address: str,
        kind: tuple[str, str, int] = NAVI21,
        serial: str | None = None,
        total: int = 17163091968,
        used: int = 692142080,
    ) -> Path:
        product, revision, version = kind
        device = self._card(address, "0x1002", product, revision, "amdgpu")
        write(device, mem_info_vram_total=total, mem_info_vram_used=used)
        write(device, gpu_busy_percent=3)
        write(device / "hwmon/hwmon2", temp1_input=41000, power1_average=20000000)
        if serial:
            write(device, unique_id=serial)
        bus, slot = int(address[5:7], 16), int(address[8:10], 16)
        node = self.root / f"sys/class/kfd/kfd/topology/nodes/{self.cards}"
        lines = {
            "simd_count": 144,
            "gfx_target_version": version,
            "location_id": bus << 8 | slot << 3,
            "domain": 0,
        }
        properties = "\n".join(f"{name} {value}" for name, value in lines.items())
        write(node, gpu_id=40000 + self.cards, properties=properties)
        return device

    def plug_intel(self, address: str, product: str, **files: object) -> Path:
        device = self._card(address, "0x8086", product, "0x08", "i915")
        write(device, **files)
        return device

    def _card(
        self, address: str, vendor: str, product: str, revision: str, driver: str
    ) -> Path:
        device = self.root / f"sys/class/drm/card{self.cards}/device"
        self.cards += 1
        write(device, vendor=vendor, device=product, revision=revision)
        write(device, uevent=f"DRIVER={driver}\nPCI_SLOT_NAME={address}")
        # What a card has for each of its plugs looks nearly like a card.
        write(device.parent.parent / f"{device.parent.name}-DP-1", status="connected")
        self._on_bus(address, vendor, product)
        return device

    def _on_bus(self, address: str, vendor: str, product: str) -> None:
        place = self.root / "sys/bus/pci/devices" / address
        write(place, vendor=vendor, device=product, **{"class": "0x030000"})
