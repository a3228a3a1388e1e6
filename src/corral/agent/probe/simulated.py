"""GPUs that are not there, for development: they are listed and fill up like others.

Whoever uses one writes down how much in the ledger, a folder of the node; what a
process that is gone wrote no longer counts.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil

from corral.agent.probe.base import Finding
from corral.core.gpu import Gpu, GpuProcess, read_simulated

_SPACE = uuid.UUID("5e7a0b9c-4c0a-4b53-9a37-6c9f0c2d7d11")


class SimulatedProbe:
    """`text` is like `2x24GB,1x8GB`; `node` makes ids differ between nodes."""

    def __init__(self, text: str, node: str, ledger: Path) -> None:
        self._sizes = read_simulated(text)
        self._node = node
        self._ledger = ledger

    def read(self) -> Finding:
        found = tuple(self._gpu(i, size) for i, size in enumerate(self._sizes))
        return Finding(found, None if found else "no simulated GPU is set")

    def close(self) -> None:
        """Nothing is kept open."""

    def _gpu(self, index: int, size_mb: float) -> Gpu:
        name = f"SIM-{uuid.uuid5(_SPACE, f'{self._node}/{index}')}"
        processes = tuple(_holders(self._ledger / name))
        used = min(size_mb, sum(p.memory_mb or 0.0 for p in processes))
        return Gpu(
            id=name,
            vendor="simulated",
            name=f"Simulated GPU {size_mb / 1024:g} GB",
            vendor_index=index,
            memory_total_mb=size_mb,
            memory_used_mb=used,
            memory_free_mb=size_mb - used,
            utilization_percent=0.0,
            is_simulated=True,
            processes=processes,
        )


def _holders(folder: Path) -> Iterator[GpuProcess]:
    for file in sorted(folder.glob("*")) if folder.is_dir() else ():
        pid = file.name.partition("-")[0]
        try:
            memory_mb = float(file.read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        if pid.isdigit() and psutil.pid_exists(int(pid)):
            yield GpuProcess(int(pid), memory_mb=memory_mb)
        else:
            file.unlink(missing_ok=True)


@contextlib.contextmanager
def hold(ledger: Path, gpu_id: str, memory_mb: float) -> Iterator[None]:
    """Take memory of a simulated GPU for this process, as a model would."""
    folder = ledger / gpu_id
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    draft = file.with_suffix(".draft")
    draft.write_text(f"{memory_mb}", encoding="ascii")
    draft.replace(file)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
