"""Which tasks run under a profiler, and the label that says so."""

from __future__ import annotations

from typing import Final

from corral.core.tasks.script import JOB_TYPE
from corral.errors import InvalidField

PROFILE = "corral.profile"
"""The label of a task to be profiled; it holds how."""
PYTHON: Final = "python"
TORCH: Final = "torch"
MEMORY: Final = "memory"
KINDS = (PYTHON, TORCH, MEMORY)


def profile_label(kind: str | None, job_type: str) -> dict[str, str]:
    """The label for it; none for no profile.

    Raises:
        InvalidField: there is no such kind, or the task is a command.
    """
    if kind is None:
        return {}
    if kind not in KINDS:
        raise InvalidField(
            f"profile must be one of {', '.join(KINDS)}", field="profile"
        )
    if job_type == JOB_TYPE:
        raise InvalidField(
            "a command cannot be profiled from outside: have it run its own profiler "
            "and leave the report in $CORRAL_ARTIFACTS",
            field="profile",
        )
    return {PROFILE: kind}
