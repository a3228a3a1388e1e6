"""A task that waits, as the scheduler sees it, and the line it stands in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from corral.core.tasks.gang import Gang
from corral.core.tasks.needs import Need
from corral.core.tasks.options import Constraint

PRIVATE = "@"
"""Begins the name of one worker's own line, and of no job type."""
BOUND = "&"
"""Begins the name of the line of tasks that a strategy has given to one worker."""
WITH = "\x1f"
"""Stands between the parts of the name of a line."""


def private_queue(worker_id: str) -> str:
    """The queue of tasks that only this worker may run."""
    return PRIVATE + worker_id


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queued attempt as the scheduler sees it.

    With a `worker_id` it waits for that worker alone, whatever types that one serves;
    with a `constraint` for a worker on a node that meets it. `arrived` is when it was
    submitted; `units` is how much work it says it is, in whatever its type counts
    (images, steps), 0 where it does not say. `owner` and `labels` say whose share it
    counts against; of a `group` at most `group_limit` are with workers at once. A
    `preemptible` one may be stopped for a critical one, and begins again. What it
    takes of its node is its `need`; members of a `gang` start together.
    """

    task_id: str
    attempt: int
    job_type: str
    seq: int
    priority: int = 0
    run_after: float = 0.0
    deadline: float | None = None
    needs: frozenset[str] = frozenset()
    size: int = 0
    worker_id: str | None = None
    constraint: Constraint | None = None
    model: str | None = None
    arrived: float = 0.0
    units: int = 0
    owner: str = ""
    labels: Mapping[str, str] | None = None
    group: str | None = None
    group_limit: int = 0
    preemptible: bool = False
    need: Need | None = None
    gang: Gang | None = None

    @property
    def queue(self) -> str:
        """Where it stands in line: with those that need the same."""
        if self.worker_id:
            return private_queue(self.worker_id)
        is_special = self.need is not None or self.gang is not None
        if self.model is None and self.constraint is None and not is_special:
            return self.job_type
        where = self.constraint.text if self.constraint is not None else ""
        key = WITH.join((self.job_type, self.model or "", where))
        if not is_special:
            return key
        gang = f"{self.owner} {self.gang.name}" if self.gang is not None else ""
        return WITH.join((key, self.need.text if self.need else "", gang))
