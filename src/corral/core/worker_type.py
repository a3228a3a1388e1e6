"""A named recipe for workers: a class, its parameters, where its code comes from."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from corral.core.environment import Environment, from_plain, to_plain
from corral.errors import InvalidField


@dataclass(frozen=True, slots=True)
class WorkerType:
    """`job_type` makes its workers connect to that type as soon as they run.

    `versions` are the digests of all entries it ever had, the current one last.
    """

    name: str
    worker_class: str
    params: dict[str, Any] = field(default_factory=dict)
    job_type: str | None = None
    environment: Environment | None = None
    versions: tuple[str, ...] = ()
    created_at: datetime | None = None

    @property
    def version(self) -> int:
        return len(self.versions)

    @property
    def entry(self) -> str | None:
        return self.versions[-1] if self.versions else None


@dataclass(frozen=True, slots=True)
class Entry:
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
    def decode(cls, data: bytes) -> Entry:
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
