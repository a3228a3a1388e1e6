"""What scripts may leave on a machine, wherever it would lie."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from corral.worker.container.request import MARK

CGROUPS = Path("/sys/fs/cgroup")
PROC = Path("/proc")


def variables(pid: int) -> dict[str, str]:
    """The environment a process was started with; none where it is gone."""
    try:
        data = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (part.partition("=") for part in data.decode(errors="replace").split("\0"))
    return {name: value for name, _, value in pairs}


@dataclass(frozen=True)
class Machine:
    """Where one cluster's scripts leave traces; made before any of them ran."""

    home: Path
    temporary: Path
    podman: Path
    api: Any
    tasks: set[str] = field(default_factory=set)
    cgroups: frozenset[str] = field(default_factory=lambda: frozenset(dead_groups()))

    def left(self) -> list[str]:
        """All that should not be there while no script runs."""
        return [
            *(f"process {text}" for text in self.processes()),
            *(f"container {text}" for text in self.containers()),
            *(f"cgroup {text}" for text in set(dead_groups()) - self.cgroups),
            *(text for cache in self.caches() for text in in_cache(cache)),
            *(f"temporary {text}" for text in self.temporaries()),
        ]

    def processes(self) -> Iterator[str]:
        """Of a job, a build or a container; what the agent itself runs may stay."""
        for process in psutil.process_iter():
            known = variables(process.pid)
            is_script = known.get("CORRAL_TASK_ID") in self.tasks
            is_job = known.get("CORRAL_JOB_MARK", "").split(".")[1:2] and (
                known["CORRAL_JOB_MARK"].split(".")[1] in self.tasks
            )
            is_build = known.get("HOME", "").startswith(f"{self.home}/agents")
            if is_script or is_job or is_build:
                yield _told(process)

    def all_processes(self) -> list[str]:
        """Whatever knows of this cluster's folder; for after it was stopped."""
        found = []
        for process in psutil.process_iter():
            known = variables(process.pid)
            told = (known.get("CORRAL_HOME", ""), known.get("CORRAL_BUILD", ""))
            if any(text.startswith(str(self.home)) for text in told):
                found.append(_told(process))
        return [*found, *self.processes()]

    def containers(self) -> Iterator[str]:
        for container in self.api.containers(all=True, filters={"label": MARK}):
            yield str(container["Labels"][MARK])
        for place in ("graph/vfs-containers", "run/vfs-containers"):
            for folder in (self.podman / place).glob("*/"):
                yield f"folder {folder}"
        for process in psutil.process_iter(["name"]):
            with contextlib.suppress(psutil.Error):
                if process.info["name"] == "conmon" and any(
                    str(self.podman) in word for word in process.cmdline()
                ):
                    yield _told(process)

    def caches(self) -> list[Path]:
        return list(self.home.glob("agents/*/cache"))

    def temporaries(self) -> Iterator[str]:
        """Names of the living may be there: their pid is part of them."""
        for place in self.temporary.iterdir():
            match = re.match(r"corral-[a-z]+-(\d+)-", place.name)
            if match is None or not psutil.pid_exists(int(match[1])):
                yield place.name


def _told(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return f"{process.pid} {' '.join(process.cmdline())[:200]}"
    return str(process.pid)


def dead_groups() -> Collection[str]:
    """Control groups of jobs whose caller is gone, and empty ones of containers."""
    found = []
    # Groups come and go while this looks at them.
    for folder, _, _ in os.walk(CGROUPS):
        name = Path(folder).name
        if match := re.match(r"corral-(\d+)-", name):
            if not psutil.pid_exists(int(match[1])):
                found.append(folder)
        elif name.startswith("libpod-"):
            with contextlib.suppress(OSError):
                if not Path(folder, "cgroup.procs").read_text().strip():
                    found.append(folder)
    return found


def in_cache(cache: Path) -> Iterator[str]:
    """Working folders, entries that are not whole, locks of nothing."""
    yield from (f"folder {place}" for place in cache.glob("work/*"))
    known = {"counters.all"}
    for kind in ("git", "tree", "venv", "uv"):
        for place in cache.glob(f"{kind}/*"):
            known.add(f"{kind}.{place.name}")
            if not (place / "done").exists() or (place / "busy").exists():
                yield f"half an entry {place}"
    yield from (
        f"lock {lock}" for lock in cache.glob("locks/*") if lock.name not in known
    )
    yield from (f"half a file {half}" for half in cache.glob(".*"))
