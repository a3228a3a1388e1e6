"""A named recipe for workers: a class, its parameters, and the job type it serves."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class WorkerType:
    """`job_type` makes its workers connect to that type as soon as they run."""

    name: str
    worker_class: str
    params: dict[str, Any] = field(default_factory=dict)
    job_type: str | None = None
    created_at: datetime | None = None
