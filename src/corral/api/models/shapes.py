"""The JSON shapes of models: which worker holds which, and the catalogue of them.

What is asked of models in memory comes first, then the catalogue and its files.
"""

from __future__ import annotations

from msgspec import Struct


class AssignIn(Struct, forbid_unknown_fields=True):
    """`pin` true keeps it in memory, false ends that, null leaves it as it is."""

    model_name: str
    worker_ids: list[str]
    preload: bool = True
    priority: int | str = 0
    pin: bool | None = None


class UnloadIn(Struct, forbid_unknown_fields=True):
    """Without workers: all that have it."""

    model_name: str
    worker_ids: list[str] = []
    force: bool = False


class RebalanceIn(Struct, forbid_unknown_fields=True):
    """`strategy` is memory_optimized or load_balanced."""

    strategy: str = "memory_optimized"
    force: bool = False
    dry_run: bool = False


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


class ModelRemoved(Struct):
    message: str
    name: str


class PullIn(Struct, forbid_unknown_fields=True):
    """Without nodes: all that have workers."""

    node_ids: list[str] = []
