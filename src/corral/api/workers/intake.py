"""From what is said of workers, and by them of their models, to our values: every check
that needs no cluster.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from corral.api.body import plain
from corral.api.workers.shapes import DeclaredWorker, HeldIn, ModelsIn
from corral.core.models.model import HeldModel, MemoryLeak
from corral.core.nodes.gpu_choice import read_wish
from corral.core.nodes.worker import LAUNCHED, WorkerSpec, WorkerState
from corral.core.tasks.job_type import check_name, job_type_of
from corral.errors import InvalidField
from corral.manager.cluster.held_models import ReportedModels

log = logging.getLogger(__name__)
MAX_COUNT = 256
_CLASS = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*(\.[^\W\d]\w*)*)?")


def worker_spec(
    name: str,
    worker_class: str,
    job_types: Sequence[str],
    params: dict[str, Any],
    concurrency: int,
    gpus: int | str = "",
) -> WorkerSpec:
    """The spec of one worker; without job types it serves what its class is named for.

    Raises:
        InvalidField: what is wrong with it.
    """
    if len(worker_class) > 255 or not _CLASS.fullmatch(worker_class):
        raise InvalidField(
            "worker_class must read module:Class or module.Class", field="worker_class"
        )
    if not 1 <= concurrency <= MAX_COUNT:
        raise InvalidField(f"concurrency must be 1 to {MAX_COUNT}", field="concurrency")
    types = tuple(dict.fromkeys(job_types)) or (job_type_of(worker_class),)
    for job_type in types:
        check_name(job_type, "job_types")
    if name:
        check_name(name, "name")
    return WorkerSpec(
        name, worker_class, types, params, concurrency, gpus=wanted_gpus(gpus)
    )


def wanted_gpus(told: int | str) -> str:
    """The cards a worker is to have for itself, checked; see `WorkerSpec`.

    Raises:
        InvalidField: it is not written like that.
    """
    text = str(told).strip()
    return text if read_wish(text) else ""


def declared_specs(said: Sequence[DeclaredWorker]) -> list[WorkerSpec]:
    """The workers an agent declares as its own."""
    specs = [_declared(w) for w in said]
    names = [spec.name for spec in specs]
    if "" in names or len(set(names)) < len(names):
        raise InvalidField("each worker needs a name of its own", field="workers")
    if any(name.startswith(LAUNCHED) for name in names):
        raise InvalidField(f"a name must not begin with {LAUNCHED}", field="workers")
    return specs


def _declared(said: DeclaredWorker) -> WorkerSpec:
    spec = worker_spec(
        said.name,
        said.worker_class,
        said.job_types,
        said.params,
        said.concurrency,
        said.gpus,
    )
    if said.url is None:
        return spec
    # One with a URL is connected by it, and serves nothing before.
    url = plain(said.url, "url")
    return replace(spec, job_types=tuple(said.job_types), url=url)


def worker_state(word: str) -> WorkerState:
    try:
        return WorkerState(word)
    except ValueError as e:
        raise InvalidField(str(e), field="state") from e


def models_word(said: ModelsIn, lead_s: float = 0.0) -> ReportedModels:
    """Times are the worker's, whose clock is `lead_s` ahead of ours."""
    return ReportedModels(
        said.number,
        [_held(model, lead_s) for model in said.held],
        {model.name: model.copies for model in said.held if model.copies > 1},
        said.sizes,
        said.restarts,
        None if said.worn is None else MemoryLeak(**msgspec.structs.asdict(said.worn)),
    )


def models_in(facts: Mapping[str, Any]) -> ReportedModels | None:
    """The same word in a beat, which repeats it, by the node's own clock.

    One that cannot be read is none: a node must not be lost for what a worker says.
    """
    told = facts.get("models")
    if told is None:
        return None
    try:
        return models_word(msgspec.convert(told, ModelsIn, str_keys=True))
    except (msgspec.ValidationError, InvalidField) as e:
        log.warning("a worker's word on its models cannot be read: %s", e)
        return None


def _held(model: HeldIn, lead_s: float) -> HeldModel:
    try:
        at = datetime.fromtimestamp(model.loaded_at - lead_s, UTC)
    except (ValueError, OverflowError, OSError) as e:
        raise InvalidField(f"{model.loaded_at} is no time", field="models") from e
    return HeldModel(
        model.name,
        model.size_mb,
        model.load_s,
        at,
        device=model.device,
        precision=model.precision,
        layers=model.layers,
        edition=model.edition,
        peaks=model.peaks,
    )
