"""What is to run in a container, and what an administrator allows: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from corral.core.nodes.gpu_choice import NO_GPU
from corral.errors import WorkerError
from corral.worker.isolation.job import SandboxLimits

if TYPE_CHECKING:
    from corral.worker.container.engine import ContainerEngine

Mode = Literal["ro", "rw"]
Vendor = Literal["nvidia", "amd"]
_SHOWN_BY: dict[Vendor, str] = {
    "nvidia": "CUDA_VISIBLE_DEVICES",
    "amd": "ROCR_VISIBLE_DEVICES",
}


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs given to a container, by the vendor's own ids; `all` stands for each."""

    vendor: Vendor
    ids: tuple[str, ...] = ("all",)


@dataclass(frozen=True, slots=True)
class ContainerJob:
    """One command in one fresh container.

    `folders` are the job's own, given by us: host path to (path inside, mode).
    `volumes` and `devices` are what a user asked for, and are checked. The image's
    entry point stays in front of `argv` unless `entrypoint` takes its place.
    """

    image: str
    argv: tuple[str, ...]
    mark: str
    folders: Mapping[str, tuple[str, Mode]] = field(default_factory=dict)
    volumes: Mapping[str, tuple[str, Mode]] = field(default_factory=dict)
    working_dir: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    gpus: Gpus | None = None
    network: bool = False
    is_read_only: bool = False
    entrypoint: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """Which engine to use, and what containers may have on this node.

    `host` is like DOCKER_HOST; empty: the usual sockets are tried. An entry of
    `allowed_volumes` is a folder, or `folder:ro`; one of `allowed_devices` a path
    below /dev. `registries` are those images are pulled from, each whole or with the
    beginning of a name; any without an entry. `may_log_in` lets them be pulled with
    the logins of the account this runs as. `memory_mb` and `processes` are for jobs
    that say nothing themselves.
    """

    host: str = ""
    allowed_volumes: tuple[str, ...] = ()
    allowed_devices: tuple[str, ...] = ()
    may_use_network: bool = False
    may_pull: bool = True
    registries: tuple[str, ...] = ()
    may_log_in: bool = False
    memory_mb: int | None = None
    processes: int = 4096

    def engine(self) -> ContainerEngine:
        """Docker or Podman of this machine.

        Raises:
            WorkerError: there is none, or it does not answer.
        """
        # Late: only who runs containers pays for the SDK.
        from corral.worker.container.engine import find

        found = find(self)
        if found is None:
            raise WorkerError(
                "this node has neither Docker nor Podman: install one, or use code "
                "from Git or a folder"
            )
        return found


def bound_gpus(environment: Mapping[str, str]) -> Gpus | None:
    """The cards the worker of this process has for itself, if a container can have
    them; the variables are those of `core/nodes/gpu_choice.py`.
    """
    if "CORRAL_GPUS" not in environment:
        return None
    for vendor, variable in _SHOWN_BY.items():
        ids = environment.get(variable, NO_GPU)
        if ids != NO_GPU:
            return Gpus(vendor, tuple(ids.split(",")))
    return None


def bound_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """What shows a container's processes their cards.

    The NVIDIA toolkit lets no other card in, and numbers those anew.
    """
    if "CORRAL_GPUS" not in environment:
        return {}
    names = ("CORRAL_GPUS", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
    return {name: environment[name] for name in names if name in environment}


def read_volumes(told: Mapping[str, str]) -> dict[str, tuple[str, Mode]]:
    """A user's `{host: "path"}` or `{host: "path:ro"}`."""
    volumes: dict[str, tuple[str, Mode]] = {}
    for host, inside in told.items():
        path, colon, mode = inside.rpartition(":")
        if colon and mode in ("ro", "rw"):
            volumes[host] = (path, "ro" if mode == "ro" else "rw")
        else:
            volumes[host] = (inside, "rw")
    return volumes
