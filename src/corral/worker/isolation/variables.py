"""The environment of a job: an allow-list, so that no secret of ours is forgotten."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from corral.core.nodes.gpu_choice import NO_GPU as _NO_GPU
from corral.core.nodes.gpu_choice import VARIABLES
from corral.worker.isolation.job import SandboxJob

MARK = "CORRAL_JOB_MARK"
# The agent finds everything its workers ever started by this one: it is passed on.
_AGENT_MARK = "CORRAL_AGENT_MARK"
_KEPT = re.compile(rf"PATH|LANG|LANGUAGE|LC_[A-Z]+|TZ|TERM|COLORTERM|{_AGENT_MARK}")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_BOUND, *_ = VARIABLES


def clean_environment(base: Mapping[str, str], job: SandboxJob) -> dict[str, str]:
    """The whole environment of `job`; of `base` it keeps what is known harmless.

    What the job asks for wins over what is kept or made, but for the GPUs it was
    given and the marks by which its processes are found.
    """
    return {
        "PATH": _PATH,
        **{name: value for name, value in base.items() if _KEPT.fullmatch(name)},
        **_places(job),
        **_threads(job.limits.cpus),
        **job.environment,
        **job.shown,
        **_shown(base),
        **_visible(job.gpus, base.get(_BOUND)),
        **({_AGENT_MARK: base[_AGENT_MARK]} if _AGENT_MARK in base else {}),
        MARK: job.mark,
    }


def _places(job: SandboxJob) -> dict[str, str]:
    home = job.home
    return {
        "HOME": str(home),
        "USER": "job",
        "LOGNAME": "job",
        "TMPDIR": str(job.temporary),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local" / "share"),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
        "XDG_RUNTIME_DIR": str(job.temporary),
    }


def _threads(cpus: float | None) -> dict[str, str]:
    if cpus is None:
        return {}
    return dict.fromkeys(_THREADS, str(max(1, math.floor(cpus))))


def _shown(base: Mapping[str, str]) -> dict[str, str]:
    """The cards our worker has for itself: its jobs see those, whatever they ask."""
    if _BOUND not in base:
        return {}
    return {name: base[name] for name in VARIABLES if name in base}


def _visible(gpus: tuple[str, ...] | None, bound: str | None) -> dict[str, str]:
    if gpus is None:
        return {}
    if bound is not None:
        gpus = tuple(gpu for gpu in gpus if gpu in bound.split(","))
    names = ",".join(gpus) or _NO_GPU
    # HIP counts among what ROCR has left over, so its numbers start again at 0.
    left = ",".join(str(number) for number in range(len(gpus))) or _NO_GPU
    return {
        **({} if bound is None else {_BOUND: ",".join(gpus)}),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": names,
        "ROCR_VISIBLE_DEVICES": names,
        "HIP_VISIBLE_DEVICES": left,
    }
