"""Who a sandboxed job is on this machine, and whose its folders are.

Root gives its jobs another user: what the sandbox shows of the system is then guarded
by file modes as well. Anybody else's jobs keep their user.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from corral.errors import WorkerError
from corral.worker.isolation.job import SandboxJob

_FALLBACK = 65534
_GPU_NODES = ("nvidia*", "kfd", "dri", "dri/*")


@dataclass(frozen=True, slots=True)
class User:
    """Whom the launcher becomes."""

    uid: int
    gid: int
    groups: tuple[int, ...]


def job_user(job: SandboxJob) -> User | None:
    """The user of a sandboxed job; None where it keeps ours."""
    if os.geteuid() != 0 or job.is_ours:
        return None
    uid, gid = _nobody()
    groups = {node.stat().st_gid for node in gpu_nodes()} if job.uses_gpu else set()
    return User(uid, gid, tuple(sorted(groups - {0})))


def gpu_nodes() -> Iterator[Path]:
    """The device files GPUs are reached by, of whatever vendor."""
    for pattern in _GPU_NODES:
        yield from sorted(Path("/dev").glob(pattern))


def hand_over(job: SandboxJob, user: User) -> None:
    """Give the job what it may write to.

    Raises:
        WorkerError: something it must read is closed to that user.
    """
    for path in job.readable:
        if path.exists() and not _is_open(path):
            raise WorkerError(f"{path} is closed to jobs: it needs mode o+rX")
    for folder in job.own_folders:
        for path in _walk(folder):
            _give(path, user)


def share(folder: Path) -> None:
    """Let every job read what is below `folder`: environments and caches."""
    for path in _walk(folder):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            continue
        wanted = 0o555 if stat.S_ISDIR(mode) or mode & 0o100 else 0o444
        if mode & wanted != wanted:
            path.chmod(stat.S_IMODE(mode) | wanted)


def _give(path: Path, user: User) -> None:
    facts = path.lstat()
    # A second name of the same file may lie in a cache: that one stays ours.
    is_shared = stat.S_ISREG(facts.st_mode) and facts.st_nlink > 1
    if not is_shared and (facts.st_uid, facts.st_gid) != (user.uid, user.gid):
        os.lchown(path, user.uid, user.gid)


def _walk(folder: Path) -> Iterator[Path]:
    yield folder
    for place, folders, names in os.walk(folder):
        yield from (Path(place, name) for name in (*folders, *names))


def _is_open(path: Path) -> bool:
    mode = path.stat().st_mode
    wanted = 0o005 if stat.S_ISDIR(mode) else 0o004
    return mode & wanted == wanted


def _nobody() -> tuple[int, int]:
    import pwd

    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return _FALLBACK, _FALLBACK
    return entry.pw_uid, entry.pw_gid
