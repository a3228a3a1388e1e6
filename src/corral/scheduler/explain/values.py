"""The answer to "why is my task waiting?" and "why did it run there?", as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from corral.scheduler.plan import Reason


@dataclass(frozen=True, slots=True)
class ExpectedStart:
    """When a task is expected to start; four of five such do from `low` to `high`."""

    at: float
    low: float
    high: float


FREE = "free"
"""Says of a worker that nothing keeps it from a task."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a task costs on a worker, in seconds, and what decides: weight a second."""

    wait_s: float
    load_s: float
    drop_s: float
    """What dropping models for it is expected to cost later."""
    run_s: float
    score: float

    @property
    def total_s(self) -> float:
        return self.wait_s + self.load_s + self.drop_s + self.run_s


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One thing that keeps a worker from a task."""

    word: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerCandidate:
    """A worker, and the first thing that keeps the task from it (`free`: nothing).

    `terms` are there where the worker could run it, now or later.
    """

    worker_id: str
    node_id: str
    verdict: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    terms: Terms | None = None


@dataclass(frozen=True, slots=True)
class Remedy:
    """Something that would start the task, in words and as data.

    `in_s` is when it comes by itself, about; None for what somebody has to do.
    """

    kind: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    command: str | None = None
    in_s: float | None = None


@dataclass(frozen=True, slots=True)
class PastPlacement:
    """Where an attempt was sent, and what decided that."""

    at: float
    worker_id: str
    node_id: str
    message: str
    terms: Terms
    load: str | None
    unload: tuple[str, ...]
    together: int
    """Tasks of the same order."""
    passed_over: tuple[str, ...]
    """Workers that were asked before it."""


@dataclass(frozen=True, slots=True)
class TaskExplanation:
    """All that can be said of a task's place; `reason` only while it waits."""

    task_id: str
    reason: Reason | None = None
    ahead: int = 0
    """Tasks before it in its line."""
    line: int = 0
    start: ExpectedStart | None = None
    run_s: float | None = None
    changes: tuple[Remedy, ...] = ()
    """What would start it, the smallest first."""
    candidates: tuple[WorkerCandidate, ...] = ()
    workers: int = 0
    """All there are; of very many only the likeliest are among the candidates."""
    placement: PastPlacement | None = None
