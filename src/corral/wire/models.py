"""Models as answers show them: who has which in memory, the catalogue, moves."""

from __future__ import annotations

from datetime import datetime

from corral.core.nodes.peer import edition_of, mark_of
from corral.wire.value import Value


class ModelInfo(Value, frozen=True, kw_only=True):
    """A model on a worker: loaded, loading, queued or failed; MB and seconds.

    A load there should take `estimated_load_time`, by `loads` that were seen.
    """

    name: str
    status: str
    memory_usage: float | None = None
    load_time: float | None = None
    last_used: datetime | None = None
    pinned: bool = False
    estimated_load_time: float | None = None
    loads: int = 0


class WorkerModels(Value, frozen=True, kw_only=True):
    """What a worker has in memory or is to have; MB.

    `memory` is its room for models, `memory_usage` what they take.
    """

    worker_id: str
    worker_name: str = ""
    node_id: str = ""
    memory: float | None = None
    memory_usage: float = 0.0
    models: list[ModelInfo] = []


class ModelAssignment(Value, frozen=True, kw_only=True):
    """`status` is loaded, loading, queued or failed; `estimated_time` is seconds."""

    worker_id: str
    status: str
    estimated_time: float | None = None


class WorkerModelsList(Value, frozen=True, kw_only=True):
    assignments: list[WorkerModels]


class AssignedModels(Value, frozen=True, kw_only=True):
    assignment_id: str = ""
    model_name: str = ""
    assignments: list[ModelAssignment]


class UnloadedModel(Value, frozen=True, kw_only=True):
    message: str = ""
    model_name: str = ""
    affected_workers: list[str]


class ModelFileInfo(Value, frozen=True, kw_only=True):
    name: str
    size: int
    sha256: str


class ModelMeasure(Value, frozen=True, kw_only=True):
    """What loads on such a device, in this precision, came to: MB and seconds.

    `batch_memory_mb` is what batches took beside it, by their number of calls.
    """

    device: str
    precision: str
    memory_mb: float | None = None
    load_time: float | None = None
    loads: int = 0
    batch_memory_mb: dict[str, float] = {}


class ModelPlace(Value, frozen=True, kw_only=True):
    """A model in a worker's memory; `layers` are counted by device."""

    worker_id: str
    device: str | None = None
    precision: str | None = None
    memory_mb: float | None = None
    layers: dict[str, int] = {}


class CatalogueInfo(Value, frozen=True, kw_only=True):
    """A model of the catalogue: reading, ready, or failed with `error`.

    `files` are told where one model is asked for; `workers` have it in memory, `placed`
    says how. Of a source that is being read, `read_bytes` were looked at.
    """

    name: str
    type: str = "other"
    source: str = ""
    revision: str = ""
    status: str = ""
    error: str | None = None
    size_bytes: int = 0
    memory_mb: float | None = None
    dtype: str | None = None
    trust_remote_code: bool = False
    tags: list[str] = []
    usage_count: int = 0
    loads: int = 0
    last_used: datetime | None = None
    created_at: datetime | None = None
    workers: list[str] = []
    measures: list[ModelMeasure] = []
    files: list[ModelFileInfo] = []
    read_bytes: int | None = None
    total_bytes: int | None = None
    placed: list[ModelPlace] = []


class CataloguePage(Value, frozen=True, kw_only=True):
    models: list[CatalogueInfo]
    total: int
    limit: int = 0
    offset: int = 0


class ModelPull(Value, frozen=True, kw_only=True):
    """The task that brings a model to a node; its progress is the fetch's."""

    node_id: str
    worker_id: str
    task_id: str


class ModelPulls(Value, frozen=True, kw_only=True):
    model_name: str = ""
    pulls: list[ModelPull]


class RebalanceOperation(Value, frozen=True, kw_only=True):
    """A model that moves (`model_migration`) or is copied (`model_copy`); seconds."""

    type: str
    from_worker: str
    to_worker: str
    model: str
    saves_s: float = 0.0
    costs_s: float = 0.0


class RebalanceInfo(Value, frozen=True, kw_only=True):
    """What moves; `status` is initiated, dry_run or balanced (there is nothing)."""

    rebalance_id: str
    status: str
    message: str = ""
    strategy: str = ""
    estimated_duration: float = 0.0
    affected_workers: list[str] = []
    operations: list[RebalanceOperation] = []


class ManifestFile(Value, frozen=True, kw_only=True, omit_defaults=True):
    """A file that a node needs; `peers` are other nodes that have it, tried first.

    `url` is where it is, `parts` the objects it lies in; else the manager has it.
    """

    name: str
    size: int
    sha256: str
    url: str | None = None
    parts: list[str] = []
    peers: list[str] = []


class ModelManifest(Value, frozen=True, kw_only=True):
    """What a node needs to have a model, as the catalogue has it."""

    name: str
    source: str = ""
    type: str = "other"
    revision: str = ""
    status: str = "ready"
    error: str | None = None
    dtype: str | None = None
    memory_mb: float | None = None
    trust_remote_code: bool = False
    files: list[ManifestFile] = []

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def mark(self) -> str:
        """The same for the same files."""
        return mark_of((file.sha256, file.name) for file in self.files)

    @property
    def edition(self) -> str:
        """The same for what is loaded in the same way."""
        return edition_of(self.mark, self.type, self.dtype, self.trust_remote_code)
