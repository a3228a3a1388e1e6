"""A worker: what should run on a node, and how it is doing."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from corral.core.environment import Environment


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
    the registry's entry it was launched from: what the node checks and runs. `gpus`
    is how many cards it is given for itself, or which ones (`2`, `0,1`, ids); empty
    for none of its own.
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


@dataclass(frozen=True, slots=True)
class Worker:
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
