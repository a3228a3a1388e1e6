"""The calls about the catalogue of models: add, look, have nodes fetch, forget."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from corral.client.bar import Advance
from corral.client.exchange import Flow, Request, get, segment
from corral.client.fault import decode
from corral.client.payload import encode
from corral.client.value import Value
from corral.errors import InvalidField


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

    `files` are told by `catalogue_model` alone; `workers` have it in memory, `placed`
    says how.
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


class ModelPull(Value, frozen=True, kw_only=True):
    """The task that brings a model to a node; its progress is the fetch's."""

    node_id: str
    worker_id: str
    task_id: str


class _Listed(msgspec.Struct):
    models: list[CatalogueInfo]
    total: int


class _Pulled(msgspec.Struct):
    pulls: list[ModelPull]


_PAGE = 1000


def catalogue(
    *, model_type: str | None = None, tag: str | None = None, search: str | None = None
) -> Flow[list[CatalogueInfo]]:
    """The models of the catalogue, by name."""
    found: list[CatalogueInfo] = []
    while True:
        query: dict[str, Any] = {"type": model_type, "tag": tag, "search": search}
        response = yield get("/models", limit=_PAGE, offset=len(found), **query)
        page = decode(response, _Listed)
        found += page.models
        if not page.models or len(found) >= page.total:
            return found


def catalogue_model(name: str) -> Flow[CatalogueInfo]:
    """A model of the catalogue with its files.

    Raises:
        NotFound: there is none of that name.
    """
    response = yield get(f"/models/{segment(name)}")
    return decode(response, CatalogueInfo)


def add_model(
    name: str,
    source: str,
    *,
    model_type: str = "other",
    revision: str = "",
    dtype: str | None = None,
    memory_mb: float | None = None,
    tags: Sequence[str] = (),
    trust_remote_code: bool = False,
) -> Flow[CatalogueInfo]:
    """Add a model, or have its source read anew; returns while that goes on.

    Args:
        name: What tasks call it.
        source: `hf:owner/name`, `s3://bucket/prefix`, `model-manager`, or a folder of
            the manager's machine.
        model_type: What it does: llm, embedding, classifier, vision, tts, diffusion or
            other.
        revision: A branch, tag or commit of a hub's model.
        dtype: The precision it is loaded in, where not the device's usual one.
        memory_mb: GPU memory it takes, until that was measured.
        tags: Words to find it by.
        trust_remote_code: Code beside the weights may run in workers (admin keys).
    """
    told = {
        "name": name,
        "source": source,
        "type": model_type,
        "revision": revision,
        "dtype": dtype,
        "memory_mb": memory_mb,
        "tags": list(tags),
        "trust_remote_code": trust_remote_code,
    }
    return (yield from _add(told))


def upload_model(
    name: str,
    folder: str | os.PathLike[str],
    *,
    model_type: str = "other",
    dtype: str | None = None,
    memory_mb: float | None = None,
    tags: Sequence[str] = (),
    trust_remote_code: bool = False,
    on_progress: Advance | None = None,
) -> Flow[CatalogueInfo]:
    """Add a model from a folder of this machine; the manager's store keeps its files.

    What is there already is not sent again. `on_progress` gets bytes done, of how many.

    Raises:
        InvalidField: the folder cannot be read, or has no files.
    """
    # Callers who send no folder need not pay for what reads one.
    from corral.client.transfer import send_tree
    from corral.client.tree import Reader
    from corral.client.walk import all_files
    from corral.core.models.architecture import CONFIG, UNKNOWN, type_of_files
    from corral.core.tree import Tree

    reader = Reader(Path(folder))
    try:
        found = sorted(all_files(Path(folder), lambda name: None))
        shown = [n for n in found if not any(p[0] == "." for p in n.split("/"))]
        files = [reader.file(path) for path in shown]
        if model_type == UNKNOWN:
            config = Path(folder, CONFIG)
            told_of = config.read_bytes() if config.is_file() else None
            model_type = type_of_files(shown, told_of)
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise InvalidField(f"cannot read {folder}: {reason}", field="folder") from error
    if not files:
        raise InvalidField(f"{folder} has no files", field="folder")
    yield from send_tree(Tree(tuple(files)), reader, on_progress)
    rows = [
        {"name": f.name, "size": f.size, "sha256": f.digest, "parts": list(f.parts)}
        for f in files
    ]
    told = {
        "name": name,
        "source": "upload",
        "type": model_type,
        "dtype": dtype,
        "memory_mb": memory_mb,
        "tags": list(tags),
        "trust_remote_code": trust_remote_code,
        "files": rows,
    }
    return (yield from _add(told))


def _add(told: dict[str, Any]) -> Flow[CatalogueInfo]:
    body = encode(told)
    response = yield Request("POST", "/models", body=body, is_repeatable=True)
    return decode(response, CatalogueInfo)


def remove_model(name: str) -> Flow[None]:
    """Take a model out of the catalogue; what nodes have of it stays for now."""
    yield Request("DELETE", f"/models/{segment(name)}", is_repeatable=True)


def pull_model(name: str, nodes: Sequence[str] = ()) -> Flow[list[ModelPull]]:
    """Have nodes fetch a model's files, all that have workers when none is named.

    Returns at once; each node's task tells how far it is.

    Raises:
        Conflict: there is no worker to do it.
    """
    body = encode({"node_ids": list(nodes)})
    response = yield Request("POST", f"/models/{segment(name)}/pull", body=body)
    return decode(response, _Pulled).pulls
