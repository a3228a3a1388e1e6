"""Runs one command of a job as an isolated, limited, wholly stoppable family.

It knows nothing of tasks, Git or the manager: a `SandboxJob` in, a `RunningJob` out.
"""

from __future__ import annotations

from corral.worker.isolation.job import Level, SandboxJob, SandboxLimits
from corral.worker.isolation.job_user import share
from corral.worker.isolation.network import Network, NetworkPolicy
from corral.worker.isolation.process import RunningJob
from corral.worker.isolation.start import best_level, level_for, start
from corral.worker.isolation.variables import clean_environment

__all__ = [
    "Level",
    "Network",
    "NetworkPolicy",
    "RunningJob",
    "SandboxJob",
    "SandboxLimits",
    "best_level",
    "clean_environment",
    "level_for",
    "share",
    "start",
]
