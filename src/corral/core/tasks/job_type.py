"""A named kind of work and where it goes; which kinds are Corral's own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from corral.errors import InvalidField

# The canary is a task that goes all the way to one worker and is answered there.
CANARY = "corral.canary"
"""Its job type, which no worker has to serve, and the label that names its flight."""
MODEL_TASK = "corral.model"
"""The job type of what is asked of a worker's models."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
ORCHESTRATOR = "@orchestrator"
OWN_TYPES = frozenset({CANARY, MODEL_TASK})
"""What Corral asks of workers for itself: in no figure, and in no dead letter."""
MOST_BATCHED = 10_000
CACHE_S = (1.0, 365 * 86_400.0)
"""For how long results may be kept."""


def check_name(value: str, field: str) -> str:
    """Names are data: letters, digits and . _ : - only, 128 at most."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise InvalidField(
            f"{field} must be 1-128 of letters, digits, '.', '_', ':' or '-', "
            "starting with a letter or digit",
            field=field,
        )
    return value


def check_text(value: str, field: str, what: str = "") -> str:
    """What people write for people: one line, not long."""
    if len(value) > 256 or not value.isprintable():
        raise InvalidField(
            f"{what or field} must be at most 256 printable characters", field=field
        )
    return value


def check_not_own(name: str, field: str) -> None:
    if name in OWN_TYPES:
        raise InvalidField(f"the job type {name} is Corral's own", field=field)


def job_type_of(worker_class: str) -> str:
    """What a class serves unless told otherwise: `RunScriptWorker` → `run_script`."""
    name = re.split(r"[:.]", worker_class)[-1]
    bare = name.removesuffix("Worker") or name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", bare).lower().strip("_") or "worker"


def check_batch_limit(value: int | None) -> None:
    if value is not None and not 1 <= value <= MOST_BATCHED:
        raise InvalidField(
            f"batch_limit must be between 1 and {MOST_BATCHED}, or null for none",
            field="batch_limit",
        )


def check_cache_ttl(value: float | None) -> None:
    least, most = CACHE_S
    if value is not None and not least <= value <= most:
        raise InvalidField(
            f"cache_ttl_s must be {least:.0f} to {most:.0f} seconds, or null for none",
            field="cache_ttl_s",
        )


class QueueOrder(StrEnum):
    """Which waiting task of a type is next."""

    PRIORITY = "priority"
    """Higher priority first, then submission order."""
    FIFO = "fifo"
    """Submission order, whatever the priority."""
    STACK = "stack"
    """The newest first, whatever the priority."""


@dataclass(frozen=True, slots=True)
class JobType:
    """`input_schema` and `output_schema` are JSON text; both may be absent.

    `target` is `@orchestrator` for workers, else an app and a path: `echo/run`.
    """

    name: str
    target: str = ORCHESTRATOR
    input_schema: str | None = None
    output_schema: str | None = None
    created_at: datetime | None = None
    queue_order: QueueOrder = QueueOrder.PRIORITY
    is_paused: bool = False
    """While it is, its tasks are accepted and wait."""
    batch_limit: int | None = None
    """How many of its tasks go to one worker at once, however long they take; with
    None as many as are done in a moment."""
    cache_ttl_s: float | None = None
    """For how long a result answers the same input again; None: each task runs."""

    def __post_init__(self) -> None:
        check_not_own(self.name, "name")
        check_batch_limit(self.batch_limit)
        check_cache_ttl(self.cache_ttl_s)

    @property
    def app(self) -> str | None:
        """The app its tasks are sent to; None when workers run them."""
        return None if self.target == ORCHESTRATOR else self.target.partition("/")[0]

    @property
    def gathered(self) -> int | None:
        """The batch limit where it counts: an app is called for each task."""
        return self.batch_limit if self.app is None else None
