"""Which control groups this process may make, and what to write into a job's own.

The guardian makes, fills and removes them; nothing here touches a job.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil

from corral.worker.isolation.job import SandboxLimits

log = logging.getLogger(__name__)

_PERIOD_US = 100_000
_PREFIX = "corral"
_END_S = 2.0
_WANTED = ("memory", "pids", "cpu")
_lock = threading.Lock()
_found: tuple[Parent, ...] | None = None


@dataclass(frozen=True, slots=True)
class Parent:
    """A folder we may make groups in, and the controllers those have."""

    folder: Path
    version: int
    controllers: frozenset[str]


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of one job, as the guardian is told."""

    plain: list[dict[str, Any]]
    controllers: frozenset[str]
    peak_file: str = ""
    oom_file: str = ""


def parents() -> tuple[Parent, ...]:
    """Where groups can be made here; tried for real, once."""
    global _found
    with _lock:
        if _found is None:
            _found = tuple(_probe(_mounts(), _own_paths()))
            _sweep(_found)
        return _found


def plan(where: tuple[Parent, ...], limits: SandboxLimits, wrappers: int) -> Groups:
    """The groups a job needs: its limits, and a list of all its processes."""
    name = f"{_PREFIX}-{os.getpid()}-{uuid4().hex[:12]}"
    plain, controllers, facts = [], frozenset[str](), ("", "")
    for parent in where:
        folder = parent.folder / name
        must, may = _values(parent, limits, wrappers)
        group = {"folder": str(folder), "make": True, "set": must, "try": may}
        plain.append(group)
        controllers |= parent.controllers
        if "memory" in parent.controllers:
            files = _FACTS[parent.version]
            facts = (str(folder / files[0]), str(folder / files[1]))
    return Groups(plain, controllers, *facts)


def joining(groups: Groups) -> list[dict[str, Any]]:
    """The same groups for a command that comes later and leaves them as they are."""
    return [
        {"folder": group["folder"], "make": False, "set": [], "try": []}
        for group in groups.plain
    ]


def clear(groups: Groups) -> None:
    """Remove what a guardian that was killed has left; its processes are gone."""
    for group in groups.plain:
        _end(Path(group["folder"]))


def members(groups: Groups) -> set[int]:
    found: set[int] = set()
    for group in groups.plain:
        with contextlib.suppress(OSError):
            text = Path(group["folder"], "cgroup.procs").read_text()
            found |= set(map(int, text.split()))
    return found


_FACTS = {
    1: ("memory.max_usage_in_bytes", "memory.oom_control"),
    2: ("memory.peak", "memory.events"),
}
Pairs = list[tuple[str, str]]


def _values(
    parent: Parent, limits: SandboxLimits, wrappers: int
) -> tuple[Pairs, Pairs]:
    """What must be written, and what is only better so."""
    must: Pairs = []
    may: Pairs = []
    has, is_v2 = parent.controllers, parent.version == 2
    if limits.memory_mb is not None and "memory" in has:
        size = str(limits.memory_mb << 20)
        must.append(("memory.max" if is_v2 else "memory.limit_in_bytes", size))
        # Swap would be a way around the limit.
        swap = ("memory.swap.max", "0")
        may.append(swap if is_v2 else ("memory.memsw.limit_in_bytes", size))
    if limits.processes is not None and "pids" in has:
        must.append(("pids.max", str(limits.processes + wrappers)))
    if limits.cpus is not None and "cpu" in has:
        quota = max(1000, round(limits.cpus * _PERIOD_US))
        if is_v2:
            must.append(("cpu.max", f"{quota} {_PERIOD_US}"))
        else:
            must.append(("cpu.cfs_period_us", str(_PERIOD_US)))
            must.append(("cpu.cfs_quota_us", str(quota)))
    return must, may


def _mounts() -> dict[str, Path]:
    """Where each controller of version 1 is mounted; version 2 under ''."""
    found: dict[str, Path] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, place, kind, options, *_ = line.split()
            if kind == "cgroup2":
                found[""] = Path(place)
            elif kind == "cgroup":
                found |= dict.fromkeys(options.split(","), Path(place))
    return found


def _own_paths() -> dict[str, str]:
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            found |= dict.fromkeys(controllers.split(","), path.lstrip("/"))
    return found


def _probe(mounts: dict[str, Path], own: dict[str, str]) -> list[Parent]:
    found: list[Parent] = []
    if "" in mounts and (parent := _version_2(mounts[""], own.get("", ""))):
        found.append(parent)
    shared: dict[Path, set[str]] = {}
    for name in _WANTED:
        if name in mounts and name in own:
            shared.setdefault(mounts[name] / own[name], set()).add(name)
    found += [Parent(folder, 1, frozenset(has)) for folder, has in shared.items()]
    return [parent for parent in found if _is_usable(parent)]


def _version_2(root: Path, own: str) -> Parent | None:
    """The nearest folder whose groups have controllers, else our own for killing.

    Our own group has processes, so only the topmost may pass controllers on.
    """
    places = [root / own, *(root / own).parents]
    for folder in places[: places.index(root) + 1]:
        has = _passed_on(folder) & set(_WANTED)
        if "memory" in has and os.access(folder, os.W_OK):
            return Parent(folder, 2, frozenset(has))
    return Parent(root / own, 2, frozenset())


def _passed_on(folder: Path) -> set[str]:
    control = folder / "cgroup.subtree_control"
    with contextlib.suppress(OSError):
        offered = set((folder / "cgroup.controllers").read_text().split())
        for name in offered.intersection(_WANTED) - set(control.read_text().split()):
            with contextlib.suppress(OSError):
                control.write_text(f"+{name}")
        return set(control.read_text().split())
    return set()


def _is_usable(parent: Parent) -> bool:
    """Make a group, move a process into it, remove it."""
    folder = parent.folder / f"{_PREFIX}-{os.getpid()}-try"
    try:
        folder.mkdir()
    except OSError as error:
        log.debug("no control groups in %s: %s", parent.folder, error.strerror)
        return False
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        (folder / "cgroup.procs").write_text(str(child.pid))
    except OSError as error:
        log.debug("no process can join %s: %s", folder, error.strerror)
        return False
    finally:
        child.kill()
        child.communicate()
        folder.rmdir()
    return True


def _sweep(where: tuple[Parent, ...]) -> None:
    """End what is left of callers that are gone, guardian and all."""
    for parent in where:
        for folder in parent.folder.glob(f"{_PREFIX}-*"):
            match = re.match(rf"{_PREFIX}-(\d+)-", folder.name)
            if match and not psutil.pid_exists(int(match[1])):
                _end(folder)


def _end(folder: Path) -> None:
    give_up_at = time.monotonic() + _END_S
    while folder.exists() and time.monotonic() < give_up_at:
        # Processes of another pid namespace read as 0, and are not ours to end.
        with contextlib.suppress(OSError):
            for pid in set((folder / "cgroup.procs").read_text().split()) - {"0"}:
                os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):  # the kernel keeps those in use
            folder.rmdir()
            return
        time.sleep(0.01)
