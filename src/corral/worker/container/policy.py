"""Refuses what an administrator has not allowed a container; looks at paths only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from corral.errors import WorkerError
from corral.worker.container.job import ContainerJob, ContainerSettings, Mode

OURS = "/corral"
"""Where what we mount for ourselves lies inside every container."""
# Mounted over, these would hide what the engine has put there, or what we have.
_TAKEN = ("/proc", "/sys", "/dev", OURS)


@dataclass(frozen=True, slots=True)
class Bind:
    """A folder or file of this machine inside a container, symlinks resolved."""

    source: str
    target: str
    mode: Mode


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
                "this node"
            )
        if mode == "rw" and all(found):
            raise WorkerError(
                f"volume {host!r} is allowed for reading only: write {inside}:ro"
            )
        yield Bind(source, inside, mode)


def _allowance(entry: str) -> tuple[Path, bool]:
    folder = entry.removesuffix(":ro")
    return Path(folder).resolve(), folder != entry


def _real(host: str) -> str:
    try:
        return str(Path(host).resolve(strict=True))
    except (OSError, RuntimeError) as error:
        raise WorkerError(f"volume {host!r} is not on this node") from error


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


def check_network(job: ContainerJob, settings: ContainerSettings) -> None:
    if job.network and not settings.may_use_network:
        raise WorkerError("containers have no network on this node")
