"""A named recipe for workers: a class, its parameters, where its code comes from."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from corral.core.nodes.gpu_choice import read_wish
from corral.core.tasks.environment import Environment, from_plain, to_plain
from corral.errors import InvalidField

MOST_WORKERS = 10_000


@dataclass(frozen=True, slots=True)
class WorkerTypeTerms:
    """What its workers are, and how many there may be.

    `job_type` makes its workers connect to that type as soon as they run. Without
    `max_workers` it is not scaled by demand. Its workers are given the cards of `gpus`,
    written as in `WorkerSpec`, unless a launch says otherwise.
    """

    name: str
    worker_class: str
    params: dict[str, Any] = field(default_factory=dict)
    job_type: str | None = None
    environment: Environment | None = None
    min_workers: int = 0
    max_workers: int | None = None
    gpus: str = ""


@dataclass(frozen=True, slots=True)
class WorkerType(WorkerTypeTerms):
    """`versions` are the digests of all entries it ever had, the current one last."""

    versions: tuple[str, ...] = ()
    created_at: datetime | None = None

    @property
    def version(self) -> int:
        return len(self.versions)

    @property
    def entry(self) -> str | None:
        return self.versions[-1] if self.versions else None


def check_scaling(kind: WorkerType) -> None:
    """Raises InvalidField: limits that no number of workers meets."""
    least, most = kind.min_workers, kind.max_workers
    if most is None:
        if least:
            raise InvalidField("min_workers needs max_workers", field="max_workers")
        return
    if not 0 <= most <= MOST_WORKERS:
        raise InvalidField(
            f"max_workers must be 0 to {MOST_WORKERS}, not {most}", field="max_workers"
        )
    if not 0 <= least <= most:
        raise InvalidField(
            f"min_workers must be 0 to max_workers ({most}), not {least}",
            field="min_workers",
        )
    if read_wish(kind.gpus).names:
        raise InvalidField(
            "a type that is scaled needs gpus as a number: its workers start on any "
            "node",
            field="gpus",
        )


def check_served(kind: WorkerType) -> None:
    """Raises InvalidField: without a job type there is no demand to follow."""
    if kind.max_workers is not None and kind.job_type is None:
        raise InvalidField(
            f"worker type {kind.name!r} serves no job type, so there is no demand to "
            "follow: register it with one",
            field="job_type",
        )


@dataclass(frozen=True, slots=True)
class WorkerCode:
    """What a node runs: the part of a worker type that is hashed."""

    worker_class: str
    params: dict[str, Any] = field(default_factory=dict)
    environment: Environment | None = None

    def encode(self) -> bytes:
        """The same bytes for the same content, whoever writes them."""
        told = {
            "worker_class": self.worker_class,
            "params": self.params,
            "environment": to_plain(self.environment) if self.environment else None,
        }
        return json.dumps(told, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> WorkerCode:
        """Read what `encode` wrote.

        Raises:
            InvalidField: it is no entry.
        """
        try:
            told = json.loads(data)
            worker_class, params = str(told["worker_class"]), dict(told["params"])
            environment = told["environment"]
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidField("this is no worker type's entry", field="entry") from (
                error
            )
        return cls(
            worker_class, params, from_plain(environment) if environment else None
        )
