"""A job as Docker's API takes it: what is asked of the engine, and nothing of how.

Privileged mode, host namespaces and added capabilities have no place here, so that no
job can ask for them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.types import DeviceRequest, HostConfig, LogConfig, Mount, Ulimit

from corral.errors import WorkerError
from corral.worker.container import policy
from corral.worker.container.job import ContainerJob, ContainerSettings, Gpus
from corral.worker.isolation.job import SandboxLimits

MARK = "corral.mark"
OWNER = "corral.owner"
CALLER = "corral.pid"
_AMD = ("/dev/kfd", "/dev/dri")
# Of an image, which Docker's NVIDIA hook would heed outside of the container.
_HOOKED = {"LD_PRELOAD": "", "LD_AUDIT": ""}
_TMP = {"/tmp": "rw,nosuid,nodev,size=1g"}


@dataclass(frozen=True, slots=True)
class Traits:
    """What must be known of an engine to ask it the right way."""

    version: str
    is_podman: bool
    is_rootless: bool
    api: str = "1.41"


def create_body(
    job: ContainerJob,
    settings: ContainerSettings,
    traits: Traits,
    owner: str,
    binds: Sequence[policy.Bind] | None = None,
) -> dict[str, Any]:
    """Arguments of the SDK's `create_container`; `binds` where they are known.

    Raises:
        WorkerError: the job asks for what is not allowed.
    """
    policy.check_network(job, settings)
    policy.check_inside(job.working_dir, job.environment)
    user = _user(traits)
    hooked = _HOOKED if job.gpus is not None and job.gpus.vendor == "nvidia" else {}
    if binds is None:
        binds = policy.binds(job, settings)
    asked: dict[str, Any] = {
        "image": job.image,
        "command": list(job.argv),
        "environment": {**hooked, **_home(user), **job.environment},
        "labels": {**job.labels, **_labels(job, owner)},
        "user": user,
        "host_config": _host_config(job, settings, traits, binds),
    }
    if job.working_dir:
        asked["working_dir"] = job.working_dir
    if job.entrypoint:
        asked["entrypoint"] = list(job.entrypoint)
    return asked


def _labels(job: ContainerJob, owner: str) -> dict[str, str]:
    return {MARK: job.mark, OWNER: owner, CALLER: str(os.getpid())}


def _user(traits: Traits) -> str:
    """Ourselves, so that the job's folders are its own without any capability."""
    # A rootless engine shows its user as root inside.
    if traits.is_rootless or not hasattr(os, "getuid"):
        return "0:0"
    return f"{os.getuid()}:{os.getgid()}"


def _home(user: str) -> dict[str, str]:
    # An image does not know our number, and gives it a home it cannot write in.
    return {} if user.startswith("0:") else {"HOME": "/tmp"}


def _host_config(
    job: ContainerJob,
    settings: ContainerSettings,
    traits: Traits,
    binds: Sequence[policy.Bind],
) -> HostConfig:
    mounts = [
        Mount(bind.target, bind.source, type="bind", read_only=bind.mode == "ro")
        for bind in binds
    ]
    return HostConfig(
        version=traits.api,
        mounts=mounts,
        devices=policy.devices(job, settings) + _gpu_files(job.gpus),
        device_requests=_gpu_requests(job.gpus, traits),
        group_add=_gpu_groups(job.gpus) or None,
        network_mode=None if job.network else "none",
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        # Output is read while it comes; a second copy would fill the disk.
        log_config=LogConfig(type="none"),
        read_only=job.is_read_only,
        tmpfs=_TMP if job.is_read_only else None,
        **_limits(job.limits, settings),
    )


def memory_of(limits: SandboxLimits, settings: ContainerSettings) -> int | None:
    """The most memory a container gets, in MiB, if there is a limit."""
    return settings.memory_mb if limits.memory_mb is None else limits.memory_mb


def _limits(limits: SandboxLimits, settings: ContainerSettings) -> dict[str, Any]:
    given: dict[str, Any] = {}
    most_mb = memory_of(limits, settings)
    if most_mb is not None:
        # No swap on top of it.
        given["mem_limit"] = given["memswap_limit"] = most_mb * 1024 * 1024
    if limits.cpus is not None:
        given["nano_cpus"] = int(limits.cpus * 1_000_000_000)
    # Always: a fork bomb must not take the machine along.
    given["pids_limit"] = limits.processes or settings.processes
    each = {
        "nofile": limits.open_files,
        "fsize": limits.file_size_mb and limits.file_size_mb * 1024 * 1024,
    }
    told = {name: most for name, most in each.items() if most}
    told = {**_kept_limits(), **told} if told else {}
    given["ulimits"] = [
        Ulimit(name=name, soft=most, hard=most) for name, most in told.items()
    ]
    return given


def _kept_limits() -> dict[str, int]:
    """Our own, for those that Podman sets to more than it may once one is told."""
    if sys.platform != "linux":
        return {}
    import resource

    pids = int(Path("/proc/sys/kernel/pid_max").read_text())
    return {
        "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "nproc": min(resource.getrlimit(resource.RLIMIT_NPROC)[1], pids),
    }


def _gpu_requests(gpus: Gpus | None, traits: Traits) -> list[DeviceRequest] | None:
    if gpus is None or gpus.vendor != "nvidia":
        return None
    if traits.is_podman:
        # It would take the request and start the container without any GPU.
        raise WorkerError(
            f"Podman {traits.version} gives no NVIDIA GPUs through Docker's API: use "
            "Docker with the NVIDIA container toolkit on this node"
        )
    if gpus.ids == ("all",):
        return [DeviceRequest(driver="nvidia", count=-1, capabilities=[["gpu"]])]
    ids = list(gpus.ids)
    return [DeviceRequest(driver="nvidia", device_ids=ids, capabilities=[["gpu"]])]


def _gpu_files(gpus: Gpus | None) -> list[str]:
    # One switch for all of them; which are seen is told by ROCR_VISIBLE_DEVICES.
    if gpus is None or gpus.vendor != "amd":
        return []
    return [f"{path}:{path}:rwm" for path in _AMD]


def _gpu_groups(gpus: Gpus | None) -> list[str]:
    """Groups that own the device files: without capabilities root needs them, too."""
    files = [Path(path) for path in _AMD] if _gpu_files(gpus) else []
    nodes = [node for file in files for node in (file, *file.glob("*"))]
    found = (node.stat().st_gid for node in nodes if node.exists())
    return [str(gid) for gid in sorted({gid for gid in found if gid})]
