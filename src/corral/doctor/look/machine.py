"""Looks at this machine: disks, memory, ports, time zones, programs."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import subprocess
import tempfile
import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from corral.doctor.judge.machine import Disk, MachineTool, Memory, Port

_TRIAL = b"corral" * 1024
_SHM = Path("/dev/shm")
_VERSION_S = 5.0


def disks(places: Mapping[str, Path]) -> Iterator[Disk]:
    """One for each file system that `places` (by what is kept there) are on."""
    known: dict[int, dict[str, Path]] = {}
    for use, place in places.items():
        near = _nearest(place)
        with contextlib.suppress(OSError):
            known.setdefault(near.stat().st_dev, {})[use] = near
    for found in known.values():
        path = next(iter(found.values()))
        room = psutil.disk_usage(str(path))
        # What is kept back for root is neither free nor ours.
        total = room.used + room.free
        refusals = (_refusal(place) for place in dict.fromkeys(found.values()))
        why = next((said for said in refusals if said), None)
        yield Disk(str(path), tuple(found), room.free, total, why, _inodes(path))


def _nearest(path: Path) -> Path:
    """The folder itself, or the one that it would be made in."""
    for place in (path, *path.parents):
        with contextlib.suppress(OSError):
            if place.is_dir():
                return place
    return path


def _refusal(folder: Path) -> str | None:
    """Why a file cannot be written there; tried, since rights do not tell it all."""
    try:
        with tempfile.TemporaryFile(dir=folder) as trial:
            trial.write(_TRIAL)
            trial.flush()
    except OSError as error:
        return f"{error.strerror}: {folder}"
    return None


def _inodes(path: Path) -> float:
    if not hasattr(os, "statvfs"):
        return 1.0
    told = os.statvfs(path)
    # Some file systems make them as they need them, and tell 0.
    return told.f_favail / told.f_files if told.f_files else 1.0


def memory() -> Memory:
    told = psutil.virtual_memory()
    shared = psutil.disk_usage(str(_SHM)).free if _SHM.is_dir() else None
    return Memory(told.available, told.total, shared)


def port(host: str, number: int, ours: frozenset[int] = frozenset()) -> Port:
    """Is it free to listen on? `ours` are pids that count as Corral."""
    return next(ports(host, [number], ours))


def ports(
    host: str, numbers: Sequence[int], ours: frozenset[int] = frozenset()
) -> Iterator[Port]:
    listeners: dict[int, int | None] | None = None
    for number in numbers:
        error = _bind(host, number)
        if error is None:
            yield Port(number)
        elif error.errno != errno.EADDRINUSE:
            why = f"{host} port {number}: {error.strerror or error}"
            yield Port(number, "nobody", refusal=why)
        else:
            listeners = _listeners() if listeners is None else listeners
            yield _held(number, listeners.get(number), ours)


def _bind(host: str, number: int) -> OSError | None:
    try:
        kinds = socket.getaddrinfo(
            host or None, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, place = kinds[0]
        with socket.socket(family, kind, protocol) as trial:
            if os.name == "posix":
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(place)
    except OSError as error:
        return error
    return None


def _listeners() -> dict[int, int | None]:
    found: dict[int, int | None] = {}
    # Only root may see the sockets of others on some systems.
    with contextlib.suppress(psutil.Error, OSError):
        for link in psutil.net_connections("tcp"):
            if link.status == psutil.CONN_LISTEN and link.laddr:
                found[link.laddr.port] = link.pid
    return found


def _held(number: int, pid: int | None, ours: frozenset[int]) -> Port:
    if pid is None:
        return Port(number, "another program")
    try:
        process = psutil.Process(pid)
        line = " ".join(process.cmdline())
        name = process.name()
    except psutil.Error:
        return Port(number, f"pid {pid}", pid in ours)
    is_ours = pid in ours or "corral" in line
    return Port(number, f"{name}, pid {pid}", is_ours)


def time_zones() -> MachineTool:
    try:
        zoneinfo.ZoneInfo("Europe/Berlin")
    except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError):
        lack = "no time zones: schedules can only use UTC"
        return MachineTool(
            "clock", lack=lack, fix="install tzdata (pip install tzdata)"
        )
    return MachineTool("clock", "time zones are known")


def git() -> MachineTool:
    said = _version("git")
    lack = "" if said else "git is not there: no code from repositories"
    return MachineTool("git", said or "", lack, "install git")


def uv() -> MachineTool:
    program: str | None
    try:
        import uv as wheel

        program = wheel.find_uv_bin()
    except (ImportError, FileNotFoundError):
        program = shutil.which("uv")
    said = _version(program) if program else None
    lack = "" if said else "uv is not there: no Python of their own for scripts"
    return MachineTool("uv", said or "", lack, "install uv (pip install uv)")


def _version(program: str) -> str | None:
    """What a program says of itself; None when it does not run here."""
    found = shutil.which(program)
    if found is None:
        return None
    try:
        said = subprocess.run(
            [found, "--version"], capture_output=True, text=True, timeout=_VERSION_S
        )
    except (OSError, subprocess.SubprocessError):
        return None
    words = said.stdout.strip().splitlines()
    return words[0] if said.returncode == 0 and words else None


def containers(host: str) -> MachineTool:
    """A container engine: the one named, one that answers, or Podman to start."""
    from corral.errors import WorkerError
    from corral.worker.container.engine import find
    from corral.worker.container.job import ContainerSettings

    fix = "install Podman or Docker to run images"
    if not host and (podman := _version("podman")):
        return MachineTool("containers", podman)
    try:
        engine = find(ContainerSettings(host=host))
    except WorkerError as error:
        return MachineTool(
            "containers", lack=error.message, fix="see CORRAL_CONTAINER_HOST"
        )
    if engine is None:
        return MachineTool("containers", lack="no container engine is here", fix=fix)
    try:
        name = "Podman" if engine.traits.is_podman else "Docker"
        return MachineTool(
            "containers", f"{name} {engine.traits.version} at {engine.host}"
        )
    finally:
        engine.close()


def sandbox() -> MachineTool:
    """How well commands of jobs can be kept apart; tried for real."""
    from corral.worker.isolation import Level, best_level
    from corral.worker.isolation.cgroup import parents

    if best_level() is not Level.SANDBOX:
        lack = "jobs run without a sandbox"
        if shutil.which("bwrap") is None:
            fix = "install bubblewrap"
        else:
            fix = "let users make namespaces (sysctl kernel.unprivileged_userns_clone)"
        return MachineTool("sandbox", lack=lack, fix=fix)
    limits = sorted({name for parent in parents() for name in parent.controllers})
    if not limits:
        lack = "jobs run in a sandbox, but without control groups for their limits"
        fix = "start the agent with systemd's Delegate=yes, or as root"
        return MachineTool("sandbox", lack=lack, fix=fix)
    return MachineTool("sandbox", f"bubblewrap, with limits for {', '.join(limits)}")
