"""An order as it was decided: what it costs, who got it, and what it carried.

A worker keeps those it has open. What is said of them in words is `explain`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

from corral.scheduler.events import WaitingTask, WorkerReady
from corral.scheduler.learn.estimate import Estimates

MOST_OPEN = 15
"""How many of its open orders a worker keeps, at most."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What running a line's next tasks on a worker takes, in seconds."""

    setup_s: float
    run_s: float
    score: float
    unload: tuple[str, ...] = ()
    count: int = 1
    first: WaitingTask | None = None
    """The task to begin with, where it is not the next in line."""
    is_late: bool = False
    """That one has waited far too long."""


@dataclass(frozen=True, slots=True)
class Decision:
    """An order as it was given; written down in words only when asked for."""

    at: float
    worker_id: str
    node_id: str
    tasks: tuple[WaitingTask, ...]
    cost: Cost
    load: str | None
    load_s: float
    was_open: int
    """Orders the worker had already."""
    passed_over: tuple[str, ...]


def carried(ready: WorkerReady, estimates: Estimates) -> tuple[Decision, ...]:
    """Orders that a worker has from before; whoever gave them knew why."""
    where = (ready.worker_id, ready.node_id)
    found = []
    for place, order in enumerate(ready.held):
        each_s = [estimates.run_s(t.job_type, t.model, t.units) for t in order.tasks]
        cost = Cost(0.0, max(each_s, default=0.0), 0.0, count=len(each_s))
        found.append(
            Decision(order.since, *where, order.tasks, cost, None, 0.0, place, ())
        )
    return tuple(found[-MOST_OPEN:])
