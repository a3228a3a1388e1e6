"""Strategies that give a task to a worker when it comes, whether that is free or not.

They are what the documents name, kept for comparison and for those who want them; the
default (`smith.py`) decides when a worker is free, which is better in all we measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from corral.scheduler.estimate import Estimates
from corral.scheduler.family import Family
from corral.scheduler.fleet import Worker
from corral.scheduler.picture import Picture
from corral.scheduler.value import BOUND, Waiting

Backlog = Callable[[Worker, Waiting], float]


class LeastLoaded:
    """The worker with the least work before it, in seconds."""

    def choose(
        self, task: Waiting, workers: Sequence[Worker], backlog: Backlog
    ) -> Worker:
        return min(workers, key=lambda w: (backlog(w, task), w.worker_id))


class WeightedRoundRobin:
    """One after the other, the faster ones more often."""

    def __init__(self) -> None:
        self._credit: dict[str, float] = {}

    def choose(
        self, task: Waiting, workers: Sequence[Worker], backlog: Backlog
    ) -> Worker:
        credit = self._credit
        for worker in workers:
            credit[worker.worker_id] = credit.get(worker.worker_id, 0.0) + worker.speed
        best = max(workers, key=lambda w: (credit[w.worker_id], w.worker_id))
        credit[best.worker_id] -= sum(worker.speed for worker in workers)
        return best


class Affinity:
    """A worker that has the model, however long its line; then the least loaded."""

    def choose(
        self, task: Waiting, workers: Sequence[Worker], backlog: Backlog
    ) -> Worker:
        warm = [worker for worker in workers if task.model in worker.models]
        return LeastLoaded().choose(task, warm or workers, backlog)


Strategy = LeastLoaded | WeightedRoundRobin | Affinity
STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "least_loaded": LeastLoaded,
    "weighted_round_robin": WeightedRoundRobin,
    "affinity": Affinity,
}


def bind(strategy: Strategy, picture: Picture, now: float) -> None:
    """Give what has come to workers' own lines, as the strategy says."""
    lines = picture.families

    def backlog(worker: Worker, task: Waiting) -> float:
        line = lines.get(BOUND + worker.worker_id)
        return backlog_s(worker, line, picture.known, task, now)

    for key in list(picture.grown):
        family = lines.get(key)
        if not family or family.only is not None or family.is_aside:
            continue
        groups = (group.workers.values() for group in family.groups)
        able = [w for workers in groups for w in workers if not w.is_held]
        for task in family.queue.in_order() if able else ():
            picture.bind(task, strategy.choose(task, able, backlog))
            if family.is_aside:
                break


def backlog_s(
    worker: Worker, line: Family | None, known: Estimates, task: Waiting, now: float
) -> float:
    """Seconds until a worker would be through with its line and this task."""
    total = max(0.0, worker.free_at - now) if worker.open_orders else 0.0
    loaded = set(worker.models)
    for waiting in (*(line.queue.tasks() if line else ()), task):
        total += known.run_s(waiting.job_type, waiting.model, waiting.units) / (
            worker.speed
        )
        if waiting.model is not None and waiting.model not in loaded:
            loaded.add(waiting.model)
            total += known.load_s(waiting.model)
    return total
