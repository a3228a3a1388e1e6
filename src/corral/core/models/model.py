"""Models as values: what a worker holds in memory, and what it was asked to keep."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

_UNLOAD = "unload"
_FETCH = "fetch"


def unload_payload(model: str) -> str:
    """The payload of a task that takes a model out of memory."""
    return json.dumps({_UNLOAD: model})


def fetch_payload(model: str) -> str:
    """The payload of a task that brings a model's files to a worker's node."""
    return json.dumps({_FETCH: model})


def model_to_fetch(payload: str | bytes) -> str | None:
    """The model whose files such a task brings; None for any other."""
    told = json.loads(payload)
    return str(told[_FETCH]) if isinstance(told, dict) and _FETCH in told else None


def models_to_drop(payloads: Iterable[str | bytes]) -> tuple[str, ...]:
    """What an order drops because tasks of it, of type `MODEL_TASK`, say so."""
    told = map(json.loads, payloads)
    return tuple(str(word[_UNLOAD]) for word in told if _UNLOAD in word)


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """What a load of a model came to.

    `size_mb` is None where its class does not say; `load_s` is what the load took. The
    rest is what its class says of it, if it does: the kind of device and the precision
    it is in, how many of its layers are on which device, and the most a batch of so
    many calls took beside it, in MB. `edition` is what of the catalogue was loaded.
    """

    name: str
    size_mb: float | None = None
    load_s: float | None = None
    device: str | None = None
    precision: str | None = None
    layers: Mapping[str, int] = field(default_factory=dict)
    peaks: Mapping[int, float] = field(default_factory=dict)
    edition: str = ""


@dataclass(frozen=True, slots=True)
class HeldModel(ModelLoad):
    """A model in a worker's memory, by the manager's clock."""

    loaded_at: datetime | None = None
    last_used: datetime | None = None


@dataclass(frozen=True, slots=True)
class MemoryLeak:
    """Memory of a model that did not come back when it was unloaded; MB."""

    model: str
    left_mb: float
    size_mb: float


@dataclass(frozen=True, slots=True)
class Pin:
    """A model that a worker is never to drop by itself.

    With `preload` it is also loaded whenever it is not there.
    """

    worker_id: str
    model: str
    preload: bool = True
    priority: int = 0
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class KnownModel:
    """What was learned of a model, wherever it was loaded."""

    name: str
    size_mb: float | None = None
    load_s: float | None = None
