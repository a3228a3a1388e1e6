"""Says how bubblewrap is to be called for a job."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from corral.errors import WorkerError
from corral.worker.isolation import mount
from corral.worker.isolation.job import SandboxJob
from corral.worker.isolation.network import Network

# Where bubblewrap finds its options, in a file without a name.
OPTION_FD = 5
_LAUNCH = "/run/corral/launch.py"


def interpreter() -> str:
    """The Python itself, not the virtual environment's link to it."""
    return os.path.realpath(sys.executable)


def script(name: str) -> list[str]:
    """The command that runs one of this folder's scripts, or one at another path.

    They are run, never imported: they do what only Linux can.
    """
    return [interpreter(), "-I", "-S", "-B", str(Path(__file__).parent / name)]


def command() -> list[str]:
    """What the guardian starts; the options follow on a pipe, out of sight.

    Raises:
        WorkerError: bubblewrap is not installed.
    """
    wrapper = shutil.which("bwrap")
    if wrapper is None:
        raise WorkerError("no sandbox without bubblewrap: it is not installed")
    return [wrapper, "--args", str(OPTION_FD), *script(_LAUNCH)]


def options(job: SandboxJob) -> list[str]:
    """All that bubblewrap is told about `job`."""
    words = [
        "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
        "--die-with-parent", "--new-session", "--as-pid-1",
        "--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm",
    ]  # fmt: skip
    if os.geteuid() == 0:
        # Kept until the launcher has become the job's user, and lost by that.
        words += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID"]
        words += ["--cap-add", "CAP_SETGID"]
    else:
        words += ["--unshare-user"]
    if job.network is Network.NONE:
        words += ["--unshare-net"]
    mounts = mount.plan(job, Path(sys.base_prefix))
    way = mount.Mount(Path(_LAUNCH), mount.MountKind.READ, script("launch.py")[-1])
    for each in (*mounts, way):
        words += [*mount.way_to(each.place), *each.words()]
    for each in mounts:
        if each.kind is mount.MountKind.EMPTY:
            words += ["--remount-ro", str(each.place)]
    return [*words, "--remount-ro", "/"]
