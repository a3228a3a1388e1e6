"""The JSON shapes of models: what is asked of them, and where they are."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class LoadedModel(Struct):
    """A model in a worker's memory; MB and seconds."""

    name: str
    memory_usage: float | None
    load_time: float | None
    last_used: datetime | None


class AssignIn(Struct, forbid_unknown_fields=True):
    """`pin` true keeps it in memory, false ends that, null leaves it as it is."""

    model_name: str
    worker_ids: list[str]
    preload: bool = True
    priority: int | str = 0
    pin: bool | None = None


class AssignedTo(Struct):
    """`status` is loaded, loading, queued or failed; `estimated_time` is seconds."""

    worker_id: str
    status: str
    estimated_time: float | None


class AssignOut(Struct):
    assignment_id: str
    model_name: str
    assignments: list[AssignedTo]


class UnloadIn(Struct, forbid_unknown_fields=True):
    """Without workers: all that have it."""

    model_name: str
    worker_ids: list[str] = []
    force: bool = False


class UnloadOut(Struct):
    message: str
    model_name: str
    affected_workers: list[str]


class AssignedModel(Struct):
    name: str
    status: str
    memory_usage: float | None
    load_time: float | None
    last_used: datetime | None
    pinned: bool


class WorkerModels(Struct):
    """`memory` is what its models may take, `memory_usage` what they take; MB."""

    worker_id: str
    worker_name: str
    node_id: str
    memory: float | None
    memory_usage: float
    models: list[AssignedModel]


class AssignmentsOut(Struct):
    assignments: list[WorkerModels]
