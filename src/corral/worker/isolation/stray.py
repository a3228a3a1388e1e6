"""Ends what is left of a job whose guardian was killed: the last resort."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

import psutil

from corral.worker.isolation import cgroup
from corral.worker.isolation.variables import MARK

_PATIENCE_S = 10.0


def end(mark: str, groups: cgroup.Groups) -> list[int]:
    """Kill by control group and by mark until a look finds nobody; who is left."""
    give_up_at = time.monotonic() + _PATIENCE_S
    while True:
        left = [p for p in _find(mark, cgroup.members(groups)) if _is_alive(p)]
        if not left or time.monotonic() > give_up_at:
            cgroup.clear(groups)
            return [process.pid for process in left]
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.01)


def _find(mark: str, grouped: set[int]) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid in grouped or process.environ().get(MARK) == mark:
                yield process


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
