"""The JSON shapes of the catalogue of models."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


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


class BillFile(Struct, omit_defaults=True):
    """For nodes: `peers` are tried first, `url`, then `parts` or the manager itself."""

    name: str
    size: int
    sha256: str
    url: str | None = None
    parts: list[str] = []
    peers: list[str] = []


class BillOut(Struct):
    name: str
    source: str
    type: str
    revision: str
    status: str
    error: str | None
    dtype: str | None
    memory_mb: float | None
    trust_remote_code: bool
    files: list[BillFile]
