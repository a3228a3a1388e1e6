"""Refuses what an administrator has not allowed a container.

Folders that jobs can write in are held while they are mounted: an engine mounts by
path, and another job may have put a link in its place by then.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from corral.errors import WorkerError
from corral.worker.container.job import ContainerJob, ContainerSettings, Mode

OURS = "/corral"
"""Where what we mount for ourselves lies inside every container."""
# Mounted over, these would hide what the engine has put there, or what we have.
_TAKEN = ("/proc", "/sys", "/dev", OURS)
# Read by programs of the engine's that are not inside yet, as root of this machine.
_NOT_A_JOBS = re.compile(r"(LD|NVIDIA)_.*")
_DOCKER_HUB = "docker.io"
_O_PATH = getattr(os, "O_PATH", None)
_Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Bind:
    """A folder or file of this machine inside a container, symlinks resolved.

    `is_shared`: other jobs may write where it lies.
    """

    source: str
    target: str
    mode: Mode
    is_shared: bool = False


def binds(job: ContainerJob, settings: ContainerSettings) -> list[Bind]:
    """Everything to mount.

    Raises:
        WorkerError: a volume that is not allowed, is not there, or has no good place.
    """
    own = [Bind(_real(host), *place) for host, place in job.folders.items()]
    return own + list(_volumes(job, settings))


def _volumes(job: ContainerJob, settings: ContainerSettings) -> Iterator[Bind]:
    allowed = [_allowance(entry) for entry in settings.allowed_volumes]
    for host, (inside, mode) in job.volumes.items():
        _check_target(inside)
        if not Path(host).is_absolute():
            raise WorkerError(f"volume {host!r} must be an absolute path")
        source = _real(host)
        found = [ro for folder, ro in allowed if Path(source).is_relative_to(folder)]
        if not found:
            raise WorkerError(
                f"volume {host!r} is not allowed: an administrator allows folders of "
                "this node (CORRAL_ALLOWED_VOLUMES)"
            )
        if mode == "rw" and all(found):
            raise WorkerError(
                f"volume {host!r} is allowed for reading only: write {inside}:ro"
            )
        yield Bind(source, inside, mode, is_shared=not all(found))


def _allowance(entry: str) -> tuple[Path, bool]:
    folder = entry.removesuffix(":ro")
    return Path(folder).resolve(), folder != entry


def _real(host: str) -> str:
    try:
        return str(Path(host).resolve(strict=True))
    except (OSError, RuntimeError) as error:
        raise WorkerError(f"volume {host!r} is not on this node") from error


class HeldFolders:
    """The shared ones of some binds, held open until they are mounted; `close` then."""

    def __init__(self, binds: Iterable[Bind]) -> None:
        self._held: list[tuple[Bind, int]] = []
        try:
            for bind in binds:
                if bind.is_shared and _O_PATH is not None:
                    self._held.append((bind, _open_real(bind.source)))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for _, file in self._held:
            os.close(file)
        self._held.clear()

    def check_sources(self) -> None:
        """Raises WorkerError when a path has come to mean something else."""
        for bind, file in self._held:
            again = _open_real(bind.source)
            try:
                if _identity(again) != _identity(file):
                    raise _swapped(bind)
            finally:
                os.close(again)

    def check_inside(self, pid: int) -> None:
        """Raises WorkerError when something else is mounted for the process.

        Whatever the paths mean by now: one can be put back. Where an engine shows
        us nothing of its processes nothing is said.
        """
        if not self._held:
            return
        try:
            mounted = set(_mounted(pid))
        except OSError:
            return
        for bind, file in self._held:
            if _identity(file) not in mounted:
                raise _swapped(bind)


def _open_real(path: str) -> int:
    """Open it part by part, and no link among them."""
    assert _O_PATH is not None
    at = os.open("/", _O_PATH)
    for part in Path(path).parts[1:]:
        try:
            inner = os.open(part, _O_PATH | os.O_NOFOLLOW, dir_fd=at)
        except OSError as error:
            raise WorkerError(f"volume {path!r} is not on this node") from error
        finally:
            os.close(at)
        at = inner
        if stat.S_ISLNK(os.fstat(at).st_mode):
            os.close(at)
            raise WorkerError(f"volume {path!r} was made a link while it was mounted")
    return at


def _identity(file: int | str) -> _Identity:
    facts = os.stat(file)
    return facts.st_dev, facts.st_ino


def _mounted(pid: int) -> Iterator[_Identity]:
    """What lies at each place where a process has something mounted."""
    told = os.fsdecode(Path(f"/proc/{pid}/mountinfo").read_bytes())
    for line in told.splitlines():
        # A blank, for one, is written as a backslash and 040.
        place = re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), line.split()[4])
        with contextlib.suppress(FileNotFoundError):
            yield _identity(f"/proc/{pid}/root{place}")


def _swapped(bind: Bind) -> WorkerError:
    return WorkerError(f"volume {bind.source!r} was replaced while it was mounted")


def _check_target(inside: str) -> None:
    path = PurePosixPath(inside)
    if not path.is_absolute() or ".." in path.parts or path == PurePosixPath("/"):
        raise WorkerError(f"a volume cannot be mounted at {inside!r}")
    if any(path.is_relative_to(taken) for taken in _TAKEN):
        raise WorkerError(f"a volume cannot be mounted at {inside!r}: it is taken")


def devices(job: ContainerJob, settings: ContainerSettings) -> list[str]:
    """The device files to give, GPUs apart, as `host:inside:permissions`.

    Raises:
        WorkerError: a device that is not allowed.
    """
    allowed = {str(Path(entry).resolve()) for entry in settings.allowed_devices}
    return [_device(told, allowed) for told in job.devices]


def _device(told: str, allowed: set[str]) -> str:
    host, _, rest = told.partition(":")
    inside, _, permissions = rest.partition(":")
    source = str(Path(host).resolve())
    if not source.startswith("/dev/") or source not in allowed:
        raise WorkerError(
            f"device {host!r} is not allowed: an administrator allows devices of this "
            "node"
        )
    if not set(permissions) <= set("rwm") or (inside and not inside.startswith("/dev")):
        raise WorkerError(f"device {told!r} must read /dev/HOST:/dev/INSIDE:rwm")
    return f"{source}:{inside or host}:{permissions or 'rw'}"


def check_inside(working_dir: str, environment: Mapping[str, str]) -> None:
    """Raises WorkerError for what would act on the engine's own programs."""
    path = PurePosixPath(working_dir or "/")
    is_taken = any(path.is_relative_to(taken) for taken in _TAKEN if taken != OURS)
    if not path.is_absolute() or ".." in path.parts or is_taken:
        raise WorkerError(f"a container cannot work in {working_dir!r}")
    for name in environment:
        if _NOT_A_JOBS.fullmatch(name):
            raise WorkerError(
                f"variable {name} is not given to containers: set it in the command, "
                "or in the image"
            )


def check_registry(image: str, settings: ContainerSettings) -> None:
    """Raises WorkerError when an image must not be pulled from where it is."""
    name = f"{qualified(image)}/"
    known = (f"{entry.strip('/')}/" for entry in settings.registries)
    if settings.registries and not any(name.startswith(entry) for entry in known):
        raise WorkerError(
            f"image {image!r} is not pulled: {qualified(image)} is not in "
            "CORRAL_CONTAINER_REGISTRIES of this node",
            image=image,
        )


def with_registry(image: str) -> str:
    """The whole name of an image: an engine of its own mind takes no other one."""
    return qualified(image) + image[len(_plain(image)) :]


def _plain(image: str) -> str:
    name = image.partition("@")[0]
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last.partition(':')[0]}"


def qualified(image: str) -> str:
    """The name of an image with its registry, without tag and digest."""
    name = _plain(image)
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return f"{_DOCKER_HUB}/{rest}" if first == f"index.{_DOCKER_HUB}" else name
    return f"{_DOCKER_HUB}/{name}" if slash else f"{_DOCKER_HUB}/library/{name}"


def check_network(job: ContainerJob, settings: ContainerSettings) -> None:
    if job.network and not settings.may_use_network:
        raise WorkerError(
            "containers have no network on this node (CORRAL_CONTAINER_NETWORK)"
        )
