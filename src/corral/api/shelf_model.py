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
    """`load_time` is what its load took; what the next should, from `loads` of them."""

    name: str
    status: str
    memory_usage: float | None
    load_time: float | None
    last_used: datetime | None
    pinned: bool
    estimated_load_time: float | None = None
    loads: int = 0


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


class RebalanceIn(Struct, forbid_unknown_fields=True):
    """`strategy` is memory_optimized or load_balanced."""

    strategy: str = "memory_optimized"
    force: bool = False
    dry_run: bool = False


class RebalanceOperation(Struct):
    """A model that moves (`model_migration`) or is copied (`model_copy`); seconds."""

    type: str
    from_worker: str
    to_worker: str
    model: str
    saves_s: float
    costs_s: float


class RebalanceOut(Struct):
    """`status` is initiated, dry_run or balanced: there is nothing to move."""

    rebalance_id: str
    status: str
    message: str
    strategy: str
    estimated_duration: float
    affected_workers: list[str]
    operations: list[RebalanceOperation]
