"""GPUs that are not there, for development: they are listed and fill up like others.

Whoever uses one writes down how much in the ledger, a folder of the node; what a
process that is gone wrote no longer counts. `<id>.errors` beside it makes up hardware
errors, `<id>.busy` how busy it is in percent, `<id>.gone` takes the card off the bus.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil

from corral.agent.probe.base import ProbeResult
from corral.core.nodes.gpu import Gpu, GpuProcess, read_simulated

_SPACE = uuid.UUID("5e7a0b9c-4c0a-4b53-9a37-6c9f0c2d7d11")


class SimulatedProbe:
    """`text` is like `2x24GB,1x8GB`; `node` makes ids differ between nodes."""

    def __init__(self, text: str, node: str, ledger: Path) -> None:
        self._sizes = read_simulated(text)
        self._node = node
        self._ledger = ledger

    def read(self) -> ProbeResult:
        cards = (self._gpu(i, size) for i, size in enumerate(self._sizes))
        found = tuple(
            card for card in cards if not self._file(card.id, "gone").exists()
        )
        return ProbeResult(found, None if found else "no simulated GPU is set")

    def close(self) -> None:
        """Nothing is kept open."""

    def _file(self, gpu_id: str, kind: str) -> Path:
        return self._ledger / f"{gpu_id}.{kind}"

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
            utilization_percent=_busy(self._file(name, "busy")),
            is_simulated=True,
            errors=_errors(self._file(name, "errors")),
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


def _busy(file: Path) -> float:
    try:
        return min(100.0, max(0.0, float(file.read_text(encoding="ascii"))))
    except (OSError, ValueError):
        return 0.0


def _errors(file: Path) -> dict[str, int]:
    """Counters as in `{"xid_79": 1}`; a file that is half written says nothing."""
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        return {str(kind): int(count) for kind, count in told.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
