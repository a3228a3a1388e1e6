"""One reading of this machine, in the words of the heartbeat; it never blocks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil

from corral.agent.link.model_peers import PeerProcess
from corral.agent.watch.gpus import GpuWatch
from corral.agent.watch.owner import OwnerWatch
from corral.core.nodes.gpu import Gpu
from corral.core.nodes.node import MachineReading

MIB = 1024 * 1024
GIB = 1024 * MIB


class Sampler:
    """`home` is the folder whose disk is watched; the others have threads."""

    def __init__(
        self,
        home: Path,
        gpus: GpuWatch | None = None,
        owner: OwnerWatch | None = None,
        peer: PeerProcess | None = None,
    ) -> None:
        self._home = home
        self.gpus = gpus
        self.owner = owner
        self.peer = peer
        # The first call only sets the mark that the next one measures from.
        psutil.cpu_percent(interval=None)

    def read_gpus(self, after: int) -> tuple[int, list[Gpu]] | None:
        """A reading newer than number `after`: its number and its cards."""
        latest = self.gpus.latest() if self.gpus else None
        return None if latest is None or latest[0] <= after else latest

    def read(self) -> MachineReading:
        memory = psutil.virtual_memory()
        disk = psutil.disk_usage(str(self._home))
        network = psutil.net_io_counters()
        load_1m, load_5m, load_15m = psutil.getloadavg()
        return MachineReading(
            cpu_count=psutil.cpu_count() or 1,
            cpu_percent=psutil.cpu_percent(interval=None),
            memory_total_mb=round(memory.total / MIB, 1),
            memory_used_mb=round((memory.total - memory.available) / MIB, 1),
            disk_total_gb=round(disk.total / GIB, 2),
            disk_used_gb=round(disk.used / GIB, 2),
            # A machine without interfaces, as a bare namespace, has no counters.
            network_rx_bytes=network.bytes_recv if network else 0,
            network_tx_bytes=network.bytes_sent if network else 0,
            load_1m=load_1m,
            load_5m=load_5m,
            load_15m=load_15m,
        )


def capabilities() -> dict[str, Any]:
    """What this machine is, told once at registration."""
    system = os.uname().sysname if hasattr(os, "uname") else "Windows"
    return {
        "system": system,
        "cpu_count": psutil.cpu_count() or 1,
        "memory_total_mb": round(psutil.virtual_memory().total / MIB, 1),
    }
