"""Lines about disks, memory, ports, clocks and the programs a node can use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from corral.doctor.result import CheckResult, ok, problem, warn

_WARN_S, _PROBLEM_S = 2.0, 60.0
SET_CLOCK = "let both follow a time server (chrony or systemd-timesyncd)"
_GB = 1e9
_PROBLEM_SHARE, _WARN_SHARE, _PROBLEM_BYTES = 0.05, 0.10, _GB
_SHM_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system and what Corral keeps there; `refusal` is why it takes no file."""

    path: str
    uses: tuple[str, ...]
    free_bytes: float
    total_bytes: float
    refusal: str | None = None
    free_inodes: float = 1.0


def disk(told: Disk) -> CheckResult:
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


def memory(told: Memory) -> Iterator[CheckResult]:
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


@dataclass(frozen=True, slots=True)
class Port:
    """`holder` is who listens there, None for nobody; `is_ours`: it is Corral."""

    number: int
    holder: str | None = None
    is_ours: bool = False
    refusal: str | None = None


def manager_port(told: Port) -> CheckResult:
    if told.refusal:
        return problem("ports", told.refusal, "correct CORRAL_HOST and CORRAL_PORT")
    if told.holder is None:
        return ok("ports", f"{told.number} is free for the manager")
    if told.is_ours:
        return ok("ports", f"{told.number} is the manager's: {told.holder}")
    found = f"{told.number} for the manager is taken by {told.holder}"
    fix = "stop that, or choose another with CORRAL_PORT or --port"
    return problem("ports", found, fix)


def worker_ports(told: Sequence[Port]) -> CheckResult:
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


@dataclass(frozen=True, slots=True)
class MachineTool:
    """A program or ability; `lack` is what is missing when it is not there."""

    name: str
    found: str = ""
    lack: str = ""
    fix: str = ""


def tool(told: MachineTool) -> CheckResult:
    if told.lack:
        return warn(told.name, told.lack, told.fix)
    return ok(told.name, told.found)


def clock(whose: str, ahead_s: float, doubt_s: float) -> CheckResult:
    """How another clock stands against ours, known to within `doubt_s`."""
    facts = {"ahead_s": round(ahead_s, 3)}
    off_s = max(abs(ahead_s) - doubt_s, 0.0)
    if off_s < _WARN_S:
        return ok("clock", f"{whose} and this machine agree to {off_s:.1f} s", **facts)
    way = "ahead of" if ahead_s > 0 else "behind"
    found = f"{whose} is {abs(ahead_s):.0f} s {way} this machine"
    make = warn if off_s < _PROBLEM_S else problem
    return make("clock", found, SET_CLOCK, **facts)
