"""What a sandboxed job sees of the file system: an allow-list, deepest path last."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from corral.errors import WorkerError
from corral.worker.isolation.job import SandboxJob
from corral.worker.isolation.job_user import gpu_nodes
from corral.worker.isolation.network import Network

_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt",
    "/sys", "/nix/store", "/gnu/store",
)  # fmt: skip
# Modes guard these from an ordinary user; here they are gone for any.
_PRIVATE = (
    "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers",
    "/etc/sudoers.d", "/etc/ssh", "/etc/ssl/private", "/etc/krb5.keytab",
    "/etc/docker", "/etc/kubernetes",
)  # fmt: skip
_RESOLVER = Path("/etc/resolv.conf")
# Ours to make in every sandbox; nobody may put something else there.
_TAKEN = frozenset(map(Path, ("/", "/proc", "/dev", "/tmp", "/run")))


class MountKind(Enum):
    """How a place is shown; the value is bubblewrap's word for it."""

    READ = "--ro-bind"
    WRITE = "--bind"
    DEVICE = "--dev-bind"
    LINK = "--symlink"
    EMPTY = "--tmpfs"


@dataclass(frozen=True, slots=True)
class Mount:
    """`source` of the machine is seen at `place`; for a link it is what it says."""

    place: Path
    kind: MountKind
    source: str

    def words(self) -> list[str]:
        if self.kind is MountKind.EMPTY:
            return [self.kind.value, str(self.place)]
        return [self.kind.value, self.source, str(self.place)]


def plan(job: SandboxJob, interpreter: Path) -> list[Mount]:
    """Every mount of `job`, parents before what lies in them.

    Raises:
        WorkerError: a path of the job cannot be shown.
    """
    mounts: dict[Path, Mount] = {m.place: m for m in _system(job)}
    _bind(mounts, MountKind.READ, interpreter)
    for path in job.readable:
        _bind(mounts, MountKind.READ, path)
        if base := _interpreter_of(path):
            _bind(mounts, MountKind.READ, base)
    for name in _PRIVATE:
        _hide(mounts, Path(name))
    for path in job.hidden:
        _hide(mounts, path)
    for path in (Path("/tmp"), Path("/var/tmp")):
        mounts[path] = Mount(path, MountKind.WRITE, str(job.temporary))
    for path in job.own_folders:
        _bind(mounts, MountKind.WRITE, path)
    if job.uses_gpu:
        for path in gpu_nodes():
            mounts[path] = Mount(path, MountKind.DEVICE, str(path))
    return sorted(mounts.values(), key=lambda mount: len(mount.place.parts))


def way_to(place: Path) -> list[str]:
    """Words that make the folders above `place`: by itself bubblewrap closes them."""
    words: list[str] = []
    for folder in reversed(place.parents[:-1]):
        words += ["--perms", "0755", "--dir", str(folder)]
    return words


def _system(job: SandboxJob) -> Iterator[Mount]:
    for path in map(Path, _SYSTEM):
        if path.is_symlink():
            yield Mount(path, MountKind.LINK, os.readlink(path))
        elif path.exists():
            yield Mount(path, MountKind.READ, str(path))
    # Often a link into /run, of which a job sees nothing else.
    resolver = _RESOLVER.resolve()
    if job.network is Network.OWN and resolver.is_file():
        yield Mount(resolver, MountKind.READ, str(job.resolver))
    elif job.network is Network.HOST and resolver != _RESOLVER and resolver.is_file():
        yield Mount(resolver, MountKind.READ, str(resolver))


def _bind(mounts: dict[Path, Mount], kind: MountKind, path: Path) -> None:
    place = Path(os.path.abspath(path))
    if place in _TAKEN or any(place.is_relative_to(p) for p in ("/proc", "/dev")):
        raise WorkerError(f"{place} cannot be given to a job")
    if not place.exists():
        raise WorkerError(f"{place} is not there")
    mounts[place] = Mount(place, kind, str(place))


def _hide(mounts: dict[Path, Mount], path: Path) -> None:
    """Cover `path`, and what a job would see of it through a link."""
    for place in {Path(os.path.abspath(path)), Path(os.path.realpath(path))}:
        shown = any(place.is_relative_to(other) for other in mounts)
        if not (shown and place.exists()) or place.is_symlink():
            continue
        kind, source = (
            (MountKind.EMPTY, "") if place.is_dir() else (MountKind.READ, os.devnull)
        )
        # An own mount that lies at or below stays: it is deeper, or comes later.
        mounts[place] = Mount(place, kind, source)


def _interpreter_of(venv: Path) -> Path | None:
    """Where the Python lives that a virtual environment only links to."""
    try:
        lines = (venv / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    pairs = (line.partition("=") for line in lines)
    found = {name.strip(): value.strip() for name, _, value in pairs}
    home = Path(os.path.realpath(found.get("home", "")))
    if home.name != "bin" or not list(home.parent.glob("lib*/python3*/os.py")):
        return None
    # A whole home is no interpreter, whatever somebody unpacked into it.
    base = home.parent
    if base in (Path("/"), Path("/usr"), Path.home()) or base.parent == Path("/home"):
        return None
    return base
