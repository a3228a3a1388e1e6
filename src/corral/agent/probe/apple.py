"""GPUs of a Mac, as `system_profiler` lists them.

Apple silicon has no card and no memory of its own: what it has is the machine's.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from typing import Any

import psutil

from corral.agent.probe.base import MIB, ProbeResult, free_mb, text
from corral.core.nodes.gpu import Gpu

COMMAND = ("/usr/sbin/system_profiler", "SPDisplaysDataType", "-json")
_TIMEOUT_S = 20.0
_CODE = re.compile(r"kHW_(.+)Item")


class AppleProbe:
    def __init__(self, command: tuple[str, ...] = COMMAND) -> None:
        self._command = command

    def read(self) -> ProbeResult:
        done = subprocess.run(
            self._command,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
        found = tuple(read_profile(json.loads(done.stdout)))
        return ProbeResult(found, None if found else "system_profiler lists no GPU")

    def close(self) -> None:
        """Nothing is kept open."""


def read_profile(told: Mapping[str, Any]) -> list[Gpu]:
    rows = told.get("SPDisplaysDataType") or []
    return [_gpu(row, index) for index, row in enumerate(rows)]


def _gpu(row: Mapping[str, Any], index: int) -> Gpu:
    name = _name(row)
    own_mb = _own_memory(row)
    is_apple = "apple" in name.casefold()
    memory = psutil.virtual_memory()
    total = memory.total / MIB if own_mb is None else own_mb
    used = (memory.total - memory.available) / MIB if own_mb is None else None
    slug = re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")
    return Gpu(
        # No serial number and no address is told: the place in the list, which macOS
        # keeps, tells equal ones apart.
        id=f"mac-{index}-{slug}",
        vendor="apple" if is_apple else _vendor(row, name),
        name=name,
        vendor_index=index,
        memory_total_mb=total,
        memory_used_mb=used,
        memory_free_mb=free_mb(total, used),
        compute=_metal(row),
        is_integrated=not is_apple and row.get("sppci_bus") == "spdisplays_builtin",
        shares_memory=own_mb is None,
    )


def _name(row: Mapping[str, Any]) -> str:
    name = text(row.get("sppci_model")) or text(row.get("_name")) or "GPU"
    if code := _CODE.fullmatch(name):
        return re.sub(r"(?<=[a-z])(?=[A-Z0-9])", " ", code[1])
    return name


def _vendor(row: Mapping[str, Any], name: str) -> str:
    words = f"{row.get('spdisplays_vendor', '')} {name}".casefold()
    known = {"amd": "amd", "radeon": "amd", "intel": "intel", "nvidia": "nvidia"}
    return next((vendor for word, vendor in known.items() if word in words), "other")


def _own_memory(row: Mapping[str, Any]) -> float | None:
    told = text(row.get("spdisplays_vram")) or text(row.get("_spdisplays_vram")) or ""
    found = re.fullmatch(r"(\d+) ?(MB|GB)", told)
    if found is None:
        return None
    return float(found[1]) * (1024 if found[2] == "GB" else 1)


def _metal(row: Mapping[str, Any]) -> str | None:
    for key in ("spdisplays_mtlgpufamilysupport", "spdisplays_metalfamily"):
        if word := text(row.get(key)):
            return word.removeprefix("spdisplays_")
    return None
