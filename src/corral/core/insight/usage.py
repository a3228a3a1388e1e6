"""Who used how much: the time tasks ran, and the GPUs they had meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class UsageBy(StrEnum):
    OWNER = "owner"
    JOB_TYPE = "job_type"
    LABEL = "label"


@dataclass(frozen=True, slots=True)
class UsageSpan:
    """From `begin` to `end` in steps (epoch seconds); what runs at `now` counts."""

    begin: int
    end: int
    step_s: int
    now: datetime


@dataclass(frozen=True, slots=True)
class UsageStep:
    """What one name used in one step; `ended` counts the runs that ended in it."""

    name: str
    at: int
    gpu_s: float
    run_s: float
    ended: int
