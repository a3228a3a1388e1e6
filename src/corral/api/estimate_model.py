"""The JSON shape of what a task should take, and how it is filled."""

from __future__ import annotations

from msgspec import Struct

from corral.core.tasks.task import Task
from corral.manager.cluster.state import Cluster
from corral.manager.tasks.explain import expected


class EstimateOut(Struct):
    """What such tasks take, seconds and MB; four of five lie from low to high.

    `runs` and `memory_runs` are how many of them that is learned from.
    """

    duration: float
    low: float
    high: float
    runs: int
    memory_mb: float | None = None
    memory_high_mb: float | None = None
    memory_runs: int = 0


def estimate(cluster: Cluster, task: Task) -> EstimateOut | None:
    """None before any task like it has run."""
    run, memory = expected(cluster, task)
    if run is None:
        return None
    value, low, high = (round(s, 3) for s in (run.value, run.low, run.high))
    told = EstimateOut(value, low, high, run.count)
    if memory is not None:
        told.memory_mb, told.memory_high_mb = round(memory.value), round(memory.high)
        told.memory_runs = memory.count
    return told
