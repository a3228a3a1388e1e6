"""The calls about models: where they are, and what workers are asked to have.

A worker is named by its id, or by its name where only one is called so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

import msgspec

from corral.client.cluster import workers
from corral.client.exchange import Flow, Request, get
from corral.client.fault import decode
from corral.client.payload import encode
from corral.client.value import Value
from corral.errors import Conflict, WorkerNotFound

_ID = re.compile(r"w-[0-9a-f]{10}")


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
    """What a worker has in memory or is to have; `memory` is its room for models."""

    worker_id: str
    worker_name: str = ""
    node_id: str = ""
    memory: float | None = None
    memory_usage: float = 0.0
    models: list[ModelInfo] = []


class ModelAssignment(Value, frozen=True, kw_only=True):
    worker_id: str
    status: str
    estimated_time: float | None = None


class _Listed(msgspec.Struct):
    assignments: list[WorkerModels]


class _Named(msgspec.Struct):
    id: str


class _Names(msgspec.Struct):
    data: list[_Named]


class _Assigned(msgspec.Struct):
    assignments: list[ModelAssignment]


class _Unloaded(msgspec.Struct):
    affected_workers: list[str]


def models() -> Flow[list[WorkerModels]]:
    """Which worker has which models in memory, or is to have them."""
    response = yield get("/models/assignments")
    return decode(response, _Listed).assignments


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
    return decode(response, _Assigned).assignments


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
    return decode(response, _Unloaded).affected_workers


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
