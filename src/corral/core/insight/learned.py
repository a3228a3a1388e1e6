"""What was learned of tasks and workers, as it is kept from one start to the next."""

from __future__ import annotations

from dataclasses import dataclass

RUN = "run"
"""Seconds that tasks of a kind take at speed 1; `middle` is the mean of logarithms."""
RECENT = "recent"
"""Seconds a task of a type takes lately, on whatever worker."""
LOAD = "load"
"""Seconds a model takes to load, on one worker or on all."""
MEMORY = "memory"
"""MB that a task takes beside its model; `middle` is the most of late."""
SPEED = "speed"
"""The logarithm of a worker's speed beside the others."""


@dataclass(frozen=True, slots=True)
class Learned:
    """A figure, what it is of, and how much it is built on.

    `spread` is how far single ones lie from it, a mean square; `sole` the one worker
    it comes from, if it comes from one alone.
    """

    kind: str
    job_type: str = ""
    model: str = ""
    units: int = 0
    worker_id: str = ""
    count: float = 0.0
    value: float = 0.0
    spread: float = 0.0
    middle: float = 0.0
    sole: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A learned figure; four of five single ones lie from `low` to `high`."""

    value: float
    low: float
    high: float
    count: int
