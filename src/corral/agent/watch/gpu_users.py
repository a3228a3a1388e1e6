"""Whose processes use a GPU: their names, and whether they are this node's work."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

import psutil

from corral.core.nodes.gpu import Gpu, GpuProcess


def with_owners(gpus: Iterable[Gpu], agent_pid: int | None = None) -> list[Gpu]:
    """The same cards, with what this machine knows of the processes on them."""
    ours = os.getpid() if agent_pid is None else agent_pid
    return [
        replace(gpu, processes=tuple(_named(row, ours) for row in gpu.processes))
        for gpu in gpus
    ]


def _named(row: GpuProcess, agent_pid: int) -> GpuProcess:
    try:
        process = psutil.Process(row.pid)
        name = row.name or process.name()
        line = {row.pid, *(parent.pid for parent in process.parents())}
    except psutil.Error:
        # In a container of its own the number means nothing here.
        return row
    return replace(row, name=name, is_ours=agent_pid in line)
