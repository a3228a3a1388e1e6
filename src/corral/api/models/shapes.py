"""The JSON shapes of models: which worker holds which, and the catalogue of them.

What is asked of models in memory comes first, then the catalogue and its files.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


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


class ModelFileIn(Struct, forbid_unknown_fields=True):
    """A file of an upload; `parts` are its objects, itself when there are none."""

    name: str
    size: int
    sha256: str
    parts: list[str] = []


class ModelIn(Struct, forbid_unknown_fields=True):
    """`source` is a folder, `hf:owner/name`, `s3://bucket/prefix`, `model-manager`,
    or `upload` with `files` whose objects are stored.

    `trust_remote_code` lets code that lies beside the weights run in workers: it needs
    an admin key.
    """

    name: str
    source: str
    type: str = "other"
    revision: str = ""
    dtype: str | None = None
    memory_mb: float | None = None
    tags: list[str] = []
    trust_remote_code: bool = False
    files: list[ModelFileIn] = []


class ModelFileOut(Struct):
    name: str
    size: int
    sha256: str


class MeasureOut(Struct):
    """What loads on such a device, in this precision, came to: MB and seconds.

    `batch_memory_mb` is what batches took beside it, by their number of calls.
    """

    device: str
    precision: str
    memory_mb: float | None
    load_time: float | None
    loads: int
    batch_memory_mb: dict[str, float] = {}


class PlacedOut(Struct):
    """A model in a worker's memory; `layers` are counted by device."""

    worker_id: str
    device: str | None
    precision: str | None
    memory_mb: float | None
    layers: dict[str, int]


class ModelOut(Struct):
    """`status` is reading, ready, or failed with `error`; sizes are bytes and MB.

    `read_bytes` is how much of a source that is being read was looked at. `workers`
    have it in memory, `placed` says how.
    """

    name: str
    type: str
    source: str
    revision: str
    status: str
    error: str | None
    size_bytes: int
    memory_mb: float | None
    dtype: str | None
    trust_remote_code: bool
    tags: list[str]
    usage_count: int
    loads: int
    last_used: datetime | None
    created_at: datetime | None
    workers: list[str]
    measures: list[MeasureOut]
    files: list[ModelFileOut] = []
    read_bytes: int | None = None
    total_bytes: int | None = None
    placed: list[PlacedOut] = []


class ModelListOut(Struct):
    models: list[ModelOut]
    total: int
    limit: int
    offset: int


class ModelRemoved(Struct):
    message: str
    name: str


class PullIn(Struct, forbid_unknown_fields=True):
    """Without nodes: all that have workers."""

    node_ids: list[str] = []


class PulledTo(Struct):
    node_id: str
    worker_id: str
    task_id: str


class PullOut(Struct):
    """One task for each node; its progress is the fetch's."""

    model_name: str
    pulls: list[PulledTo]


class ManifestFileOut(Struct, omit_defaults=True):
    """For nodes: `peers` are tried first, `url`, then `parts` or the manager itself."""

    name: str
    size: int
    sha256: str
    url: str | None = None
    parts: list[str] = []
    peers: list[str] = []


class ManifestOut(Struct):
    name: str
    source: str
    type: str
    revision: str
    status: str
    error: str | None
    dtype: str | None
    memory_mb: float | None
    trust_remote_code: bool
    files: list[ManifestFileOut]
