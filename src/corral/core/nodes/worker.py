"""A worker: what should run on a node, and how it is doing."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from corral.core.tasks.environment import Environment

LAUNCHED = "api-"
"""Begins the name of every worker that somebody launched."""
MOVABLE = "api-any-"
"""Begins the name of those that were launched without naming a node."""


class WorkerState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    BUSY = "busy"
    ERROR = "error"
    LOST = "lost"
    STOPPED = "stopped"


# What the REST documents call these states.
REST_STATE = {
    WorkerState.STARTING: "offline",
    WorkerState.READY: "online",
    WorkerState.BUSY: "busy",
    WorkerState.ERROR: "error",
    WorkerState.LOST: "offline",
    WorkerState.STOPPED: "offline",
}


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """The desired worker: a class by `module:Class` or dotted path.

    `url` is a name the job API knows it by; nobody dials it. `entry` is the digest of
    the registry's entry it was launched from: what the node checks and runs.

    `gpus` is which cards it is given for itself: empty or 0 for none of its own, a
    plain number for how many (`2`), else a list of those it must be: `gpu:0,gpu:1` by
    their numbers on the node, ids, starts of ids (8 characters or more), or PCI
    addresses.
    """

    name: str
    worker_class: str
    job_types: tuple[str, ...]
    params: dict[str, Any] = field(default_factory=dict)
    concurrency: int = 1
    worker_type: str | None = None
    url: str | None = None
    environment: Environment | None = None
    entry: str | None = None
    gpus: str = ""

    def types_run(self, job_type: str) -> tuple[str, ...]:
        """The job types whose rules hold for a task of `job_type` that runs here: its
        own if it is served, else all that are.
        """
        return (job_type,) if job_type in self.job_types else self.job_types

    @property
    def is_launched(self) -> bool:
        """Somebody asked the manager for it; others are their node's own."""
        return self.name.startswith(LAUNCHED)

    @property
    def is_movable(self) -> bool:
        """No node was named when it was launched, nor any card."""
        is_bound = bool(self.gpus) and not self.gpus.isdigit()
        return self.name.startswith(MOVABLE) and not is_bound


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A row: desired (`spec`, `wanted`, `generation`) and observed (the rest).

    A `generation` other than the one that runs means: start anew.
    """

    id: str
    node_id: str
    spec: WorkerSpec
    wanted: bool = True
    state: WorkerState = WorkerState.STARTING
    incarnation: str | None = None
    pid: int | None = None
    error: str | None = None
    restarts: int = 0
    started_at: datetime | None = None
    last_heartbeat: datetime | None = None
    generation: int = 0
