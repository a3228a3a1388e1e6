"""This machine: disks, memory, ports, clocks, and the programs a node can use."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import shutil
import socket
import subprocess
import tempfile
import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil

from corral import __version__
from corral.doctor.check import Check, CheckResult, ok, problem, warn
from corral.doctor.role import Role

if TYPE_CHECKING:
    from corral.settings import Settings

_TRIAL = b"corral" * 1024
_SHM = Path("/dev/shm")
_VERSION_S = 5.0
# Starting a sandbox and asking an engine takes its time on a busy machine.
_TOOL_S = 20.0
_WARN_S, _PROBLEM_S = 2.0, 60.0
SET_CLOCK = "let both follow a time server (chrony or systemd-timesyncd)"
_GB = 1e9
_PROBLEM_SHARE, _WARN_SHARE, _PROBLEM_BYTES = 0.05, 0.10, _GB
_SHM_BYTES = 64 << 20


def checks(container_host: str = "") -> list[Check]:
    """What can be looked at even where the settings cannot be read."""
    return [
        Check("memory", lambda: judge_memory(look_memory())),
        Check("clock", lambda: [time_zones()]),
        Check("sandbox", lambda: [sandbox()], _TOOL_S),
        Check("containers", lambda: [containers(container_host)], _TOOL_S),
        Check("git", lambda: [git()]),
        Check("uv", lambda: [uv()]),
    ]


def version() -> Iterator[CheckResult]:
    found = f"Corral {__version__} on Python {platform.python_version()}"
    yield ok("version", found)


def disks(config: Settings, role: Role) -> Iterator[CheckResult]:
    folder = role.folder
    places = {"home": folder.home}
    if role.is_manager:
        places["data"] = folder.postgres
        if "://" not in config.object_store:
            places["objects"] = Path(config.object_store).absolute()
    places["cache"] = folder.agents
    places["models"] = Path(config.model_cache_dir).absolute()
    places["temp"] = Path(tempfile.gettempdir())
    return (judge_disk(disk) for disk in look_disks(places))


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system and what Corral keeps there; `refusal` is why it takes no file."""

    path: str
    uses: tuple[str, ...]
    free_bytes: float
    total_bytes: float
    refusal: str | None = None
    free_inodes: float = 1.0


def look_disks(places: Mapping[str, Path]) -> Iterator[Disk]:
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


def judge_disk(told: Disk) -> CheckResult:
    share = told.free_bytes / told.total_bytes if told.total_bytes else 0.0
    place = f"{told.path} ({', '.join(told.uses)})"
    found = f"{place}: {size(told.free_bytes)} of {size(told.total_bytes)} free"
    facts = {"path": told.path, "free_bytes": told.free_bytes}
    moving = "free some space, or move it (CORRAL_HOME, TMPDIR)"
    if told.free_bytes < _PROBLEM_BYTES or share < _PROBLEM_SHARE:
        return problem("disk", f"{found}: it is full or nearly so", moving, **facts)
    if told.refusal:
        fix = "mount it for writing, or give this user the folder"
        return problem("disk", f"{place} takes no file: {told.refusal}", fix, **facts)
    if told.free_inodes < _PROBLEM_SHARE:
        return problem("disk", f"{place} has no room for more files", moving, **facts)
    if share < _WARN_SHARE:
        return warn("disk", found, moving, **facts)
    return ok("disk", found, **facts)


@dataclass(frozen=True, slots=True)
class Memory:
    available_bytes: float
    total_bytes: float
    shared_bytes: float | None = None


def look_memory() -> Memory:
    told = psutil.virtual_memory()
    shared = psutil.disk_usage(str(_SHM)).free if _SHM.is_dir() else None
    return Memory(told.available, told.total, shared)


def judge_memory(told: Memory) -> Iterator[CheckResult]:
    share = told.available_bytes / told.total_bytes if told.total_bytes else 0.0
    found = f"{size(told.available_bytes)} of {size(told.total_bytes)} available"
    if share < _WARN_SHARE:
        make = problem if share < _PROBLEM_SHARE else warn
        yield make("memory", found, "end what uses it, or run fewer workers")
    else:
        yield ok("memory", found)
    if told.shared_bytes is not None and told.shared_bytes < _SHM_BYTES:
        found = f"/dev/shm has {size(told.shared_bytes)} left"
        fix = "data loaders need more: --shm-size=8g for a container"
        yield warn("memory", found, fix)


def size(count: float) -> str:
    for unit, scale in (("TB", 1e12), ("GB", _GB), ("MB", 1e6)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"


def ports(config: Settings, role: Role) -> Iterator[CheckResult]:
    children = role.state.children.values() if role.state else ()
    ours = frozenset(mark.pid for mark in children)
    if role.is_manager:
        # Started with --port, it is not where the settings say.
        told = urlsplit(role.state.url).port if role.state and role.is_running else None
        port = look_port(config.host, told or config.port, ours)
        yield judge_manager_port(port)
    span = _span(config.worker_ports)
    if not span:
        found = f"CORRAL_WORKER_PORTS={config.worker_ports} is no range of ports"
        yield problem("ports", found, "write it like 8092-8111")
        return
    yield judge_worker_ports(list(look_ports(config.host, span, ours)))


def _span(text: str) -> Sequence[int]:
    low, high = (int(part) for part in text.replace(",", "-").split("-"))
    return range(low, high + 1) if 1 <= low <= high <= 65_535 else ()


@dataclass(frozen=True, slots=True)
class Port:
    """`holder` is who listens there, None for nobody; `is_ours`: it is Corral."""

    number: int
    holder: str | None = None
    is_ours: bool = False
    refusal: str | None = None


def look_port(host: str, number: int, ours: frozenset[int] = frozenset()) -> Port:
    """Is it free to listen on? `ours` are pids that count as Corral."""
    return next(look_ports(host, [number], ours))


def look_ports(
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


def judge_manager_port(told: Port) -> CheckResult:
    if told.refusal:
        return problem("ports", told.refusal, "correct CORRAL_HOST and CORRAL_PORT")
    if told.holder is None:
        return ok("ports", f"{told.number} is free for the manager")
    if told.is_ours:
        return ok("ports", f"{told.number} is the manager's: {told.holder}")
    found = f"{told.number} for the manager is taken by {told.holder}"
    fix = "stop that, or choose another with CORRAL_PORT or --port"
    return problem("ports", found, fix)


def judge_worker_ports(told: Sequence[Port]) -> CheckResult:
    """Ports that workers of the job API may open."""
    span = f"{told[0].number}-{told[-1].number}"
    taken = [p for p in told if p.holder is not None and not p.is_ours]
    ours = sum(p.is_ours for p in told)
    if not taken:
        used = f", {ours} of them used by workers" if ours else ""
        return ok("ports", f"{span} are free for workers{used}")
    some = ", ".join(f"{p.number} ({p.holder})" for p in taken[:3])
    found = f"{len(taken)} of {len(told)} for workers are taken: {some}"
    is_full = len(taken) + ours == len(told)
    make = problem if is_full else warn
    return make("ports", found, "choose others with CORRAL_WORKER_PORTS")


def judge_clock(whose: str, ahead_s: float, doubt_s: float) -> CheckResult:
    """How another clock stands against ours, known to within `doubt_s`."""
    facts = {"ahead_s": round(ahead_s, 3)}
    off_s = max(abs(ahead_s) - doubt_s, 0.0)
    if off_s < _WARN_S:
        return ok("clock", f"{whose} and this machine agree to {off_s:.1f} s", **facts)
    way = "ahead of" if ahead_s > 0 else "behind"
    found = f"{whose} is {abs(ahead_s):.0f} s {way} this machine"
    make = warn if off_s < _PROBLEM_S else problem
    return make("clock", found, SET_CLOCK, **facts)


def time_zones() -> CheckResult:
    try:
        zoneinfo.ZoneInfo("Europe/Berlin")
    except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError):
        lack = "no time zones: schedules can only use UTC"
        return warn("clock", lack, "install tzdata (pip install tzdata)")
    return ok("clock", "time zones are known")


def _tool(name: str, program: str | None, lack: str, fix: str) -> CheckResult:
    said = _version_of(program) if program else None
    return ok(name, said) if said else warn(name, lack, fix)


def git() -> CheckResult:
    lack = "git is not there: no code from repositories"
    return _tool("git", "git", lack, "install git")


def uv() -> CheckResult:
    program: str | None
    try:
        import uv as wheel

        program = wheel.find_uv_bin()
    except (ImportError, FileNotFoundError):
        program = shutil.which("uv")
    lack = "uv is not there: no Python of their own for scripts"
    return _tool("uv", program, lack, "install uv (pip install uv)")


def _version_of(program: str) -> str | None:
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


def containers(host: str) -> CheckResult:
    """A container engine: the one named, one that answers, or Podman to start."""
    from corral.errors import WorkerError
    from corral.worker.container.engine import find
    from corral.worker.container.job import ContainerSettings

    if not host and (podman := _version_of("podman")):
        return ok("containers", podman)
    try:
        engine = find(ContainerSettings(host=host))
    except WorkerError as error:
        return warn("containers", error.message, "see CORRAL_CONTAINER_HOST")
    if engine is None:
        fix = "install Podman or Docker to run images"
        return warn("containers", "no container engine is here", fix)
    try:
        name = "Podman" if engine.traits.is_podman else "Docker"
        return ok("containers", f"{name} {engine.traits.version} at {engine.host}")
    finally:
        engine.close()


def sandbox() -> CheckResult:
    """How well commands of jobs can be kept apart; tried for real."""
    from corral.worker.isolation import Level, best_level, network
    from corral.worker.isolation.cgroup import parents

    if best_level() is not Level.SANDBOX:
        lack = "no sandbox: scripts and functions are refused here"
        if shutil.which("bwrap") is None:
            fix = "install bubblewrap"
        else:
            fix = "let users make namespaces (sysctl kernel.unprivileged_userns_clone)"
        return warn("sandbox", lack, fix)
    if lacks := network.missing():
        lack = f"jobs have no network of their own here: {', '.join(lacks)} missing"
        fix = "install slirp4netns and nftables, and let the agent open /dev/net/tun"
        return warn("sandbox", lack, fix)
    limits = sorted({name for parent in parents() for name in parent.controllers})
    if not limits:
        lack = "jobs run in a sandbox, but without control groups for their limits"
        fix = "start the agent with systemd's Delegate=yes, or as root"
        return warn("sandbox", lack, fix)
    return ok("sandbox", f"bubblewrap, with limits for {', '.join(limits)}")
