"""The calls about models: the catalogue, what workers have in memory, moves.

A worker is named by its id, or by its name where only one is called so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from corral.client.calls.workers import workers
from corral.client.http.endpoint import Flow, Request, get, segment
from corral.client.http.errors import decode
from corral.client.http.payload import encode
from corral.client.progress import Advance
from corral.errors import Conflict, InvalidField, WorkerNotFound
from corral.wire.models import (
    AssignedModels,
    CatalogueInfo,
    CataloguePage,
    ModelAssignment,
    ModelPull,
    ModelPulls,
    RebalanceInfo,
    UnloadedModel,
    WorkerModels,
    WorkerModelsList,
)

_ID = re.compile(r"w-[0-9a-f]{10}")
_PAGE = 1000


class _Named(msgspec.Struct):
    id: str


class _Names(msgspec.Struct):
    data: list[_Named]


def models() -> Flow[list[WorkerModels]]:
    """Which worker has which models in memory, or is to have them."""
    response = yield get("/models/assignments")
    return decode(response, WorkerModelsList).assignments


def model_names() -> Flow[list[str]]:
    """Models that can be asked for: of the catalogue, and those workers know of."""
    response = yield get("/v1/models")
    return [named.id for named in decode(response, _Names).data]


def assign_model(
    model: str,
    workers: Sequence[str],
    *,
    preload: bool = True,
    pin: bool | None = None,
    priority: int | str = 0,
) -> Flow[list[ModelAssignment]]:
    """Load a model on workers, have them keep it (`pin`), or no longer (`pin=False`).

    Returns at once; `models()` shows when it is loaded.

    Raises:
        WorkerNotFound: one of them is unknown.
        Conflict: it is too large for one of them.
    """
    body = {
        "model_name": model,
        "worker_ids": (yield from _ids(workers)),
        "preload": preload,
        "priority": priority,
        "pin": pin,
    }
    request = Request("POST", "/models/assign", body=encode(body), is_repeatable=True)
    response = yield request
    return decode(response, AssignedModels).assignments


def unload_model(
    model: str, workers: Sequence[str] = (), *, force: bool = False
) -> Flow[list[str]]:
    """Have workers drop a model, all that have it when none is named; their ids.

    Raises:
        Conflict: it is pinned, and `force` was not said.
    """
    body = {
        "model_name": model,
        "worker_ids": (yield from _ids(workers)),
        "force": force,
    }
    request = Request("POST", "/models/unload", body=encode(body), is_repeatable=True)
    response = yield request
    return decode(response, UnloadedModel).affected_workers


def _ids(names: Sequence[str]) -> Flow[list[str]]:
    if all(_ID.fullmatch(name) for name in names):
        return list(names)
    known = yield from workers()
    found = []
    for name in names:
        mine = [w.worker_id for w in known if name in (w.worker_id, w.name)]
        if not mine:
            raise WorkerNotFound(f"no worker {name!r}", worker_id=name)
        if len(mine) > 1:
            ids = ", ".join(mine)
            raise Conflict(f"several workers are called {name!r}: use an id ({ids})")
        found += mine
    return found


# The calls about the catalogue of models: add, look, have nodes fetch, forget.


def catalogue(
    *, model_type: str | None = None, tag: str | None = None, search: str | None = None
) -> Flow[list[CatalogueInfo]]:
    """The models of the catalogue, by name."""
    found: list[CatalogueInfo] = []
    while True:
        query: dict[str, Any] = {"type": model_type, "tag": tag, "search": search}
        response = yield get("/models", limit=_PAGE, offset=len(found), **query)
        page = decode(response, CataloguePage)
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
    from corral.client.calls.objects import send_tree
    from corral.core.models.architecture import CONFIG, UNKNOWN, type_of_files
    from corral.core.tree import Tree
    from corral.files.read_folder import TreeReader
    from corral.files.walk import all_files

    reader = TreeReader(Path(folder))
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
    return decode(response, ModelPulls).pulls


# The call that has models move to workers where they are worth more.


def rebalance(
    *,
    strategy: str = "memory_optimized",
    force: bool = False,
    dry_run: bool = False,
) -> Flow[RebalanceInfo]:
    """Have models go to workers where they are worth more; returns at once.

    `strategy` is memory_optimized or load_balanced. Workers that are busy are left
    alone without `force`; a `dry_run` only says what would move.

    Raises:
        Conflict: the last one is not through.
    """
    body = {"strategy": strategy, "force": force, "dry_run": dry_run}
    response = yield Request("POST", "/cluster/rebalance", body=encode(body))
    return decode(response, RebalanceInfo)
