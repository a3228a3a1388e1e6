"""From what is said of workers to our values: every check that needs no cluster."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from corral.api.body import plain
from corral.core.nodes.gpu_choice import read_wish
from corral.core.nodes.worker import LAUNCHED, WorkerSpec
from corral.core.tasks.job_type import check_name, job_type_of
from corral.errors import InvalidField
from corral.wire.agent import DeclaredWorker, WorkerRecipe

MAX_COUNT = 256
_CLASS = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*(\.[^\W\d]\w*)*)?")


def worker_spec(name: str, said: WorkerRecipe, gpus: int | str = "") -> WorkerSpec:
    """The spec of one worker; without job types it serves what its class is named for.

    Raises:
        InvalidField: what is wrong with it.
    """
    worker_class, concurrency = said.worker_class, said.concurrency
    if len(worker_class) > 255 or not _CLASS.fullmatch(worker_class):
        raise InvalidField(
            "worker_class must read module:Class or module.Class", field="worker_class"
        )
    if not 1 <= concurrency <= MAX_COUNT:
        raise InvalidField(f"concurrency must be 1 to {MAX_COUNT}", field="concurrency")
    types = tuple(dict.fromkeys(said.job_types)) or (job_type_of(worker_class),)
    for job_type in types:
        check_name(job_type, "job_types")
    if name:
        check_name(name, "name")
    return WorkerSpec(
        name, worker_class, types, said.params, concurrency, gpus=wanted_gpus(gpus)
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
    spec = worker_spec(said.name, said, said.gpus)
    if said.url is None:
        return spec
    # One with a URL is connected by it, and serves nothing before.
    url = plain(said.url, "url")
    return replace(spec, job_types=tuple(said.job_types), url=url)
