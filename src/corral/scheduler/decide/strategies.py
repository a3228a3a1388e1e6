"""Strategies that give a task to a worker when it comes, whether that is free or not.

They are what the documents name, kept for comparison and for those who want them; the
default (`cost.py`) decides when a worker is free, which is better in all we measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from corral.scheduler.events import BOUND, WaitingTask
from corral.scheduler.world.fleet import FleetWorker
from corral.scheduler.world.line import TaskLine
from corral.scheduler.world.picture import Picture


@dataclass(frozen=True, slots=True)
class StrategyView:
    """What a strategy sees when it chooses."""

    picture: Picture
    now: float

    def line(self, worker: FleetWorker) -> TaskLine | None:
        """The tasks that wait for this worker."""
        return self.picture.lines.get(BOUND + worker.worker_id)

    def run_s(self, task: WaitingTask) -> float:
        return self.picture.estimates.run_s(task.job_type, task.model, task.units)


class LeastLoaded:
    """The worker that would be through with a task first, loads of models included."""

    def __init__(self) -> None:
        # By worker: tasks in its line, their seconds, their models. Long lines are
        # counted again only when they have moved, else each task would cost them all.
        self._counted: dict[str, tuple[int, float, dict[str, None]]] = {}

    def choose(
        self, task: WaitingTask, workers: Sequence[FleetWorker], look: StrategyView
    ) -> FleetWorker:
        best = min(workers, key=lambda w: (self._through_s(w, task, look), w.worker_id))
        length, run_s, models = self._count(best, look)
        if task.model is not None:
            models[task.model] = None
        run_s += look.run_s(task)
        self._counted[best.worker_id] = (length + 1, run_s, models)
        return best

    def _through_s(
        self, worker: FleetWorker, task: WaitingTask, look: StrategyView
    ) -> float:
        """Seconds until it would be through with its line and this task."""
        _, run_s, models = self._count(worker, look)
        names = models if task.model is None else {**models, task.model: None}
        load_s = look.picture.estimates.load_s
        total = max(0.0, worker.free_at - look.now) if worker.open_orders else 0.0
        new = (name for name in names if name not in worker.models)
        total += sum(load_s(name, worker.worker_id) for name in new)
        return total + (run_s + look.run_s(task)) / worker.speed

    def _count(
        self, worker: FleetWorker, look: StrategyView
    ) -> tuple[int, float, dict[str, None]]:
        line = look.line(worker)
        length = len(line) if line else 0
        counted = self._counted.get(worker.worker_id)
        if counted is None or counted[0] != length:
            tasks = line.queue.tasks() if line else ()
            models = {task.model: None for task in tasks if task.model is not None}
            counted = (length, sum(map(look.run_s, tasks)), models)
            self._counted[worker.worker_id] = counted
        return counted


class WeightedRoundRobin:
    """One after the other, the faster ones more often."""

    def __init__(self) -> None:
        self._credit: dict[str, float] = {}

    def choose(
        self, task: WaitingTask, workers: Sequence[FleetWorker], look: StrategyView
    ) -> FleetWorker:
        credit = self._credit
        for worker in workers:
            credit[worker.worker_id] = credit.get(worker.worker_id, 0.0) + worker.speed
        best = max(workers, key=lambda w: (credit[w.worker_id], w.worker_id))
        credit[best.worker_id] -= sum(worker.speed for worker in workers)
        return best


class Affinity:
    """A worker that has the model, however long its line; then the least loaded."""

    def __init__(self) -> None:
        self._least = LeastLoaded()

    def choose(
        self, task: WaitingTask, workers: Sequence[FleetWorker], look: StrategyView
    ) -> FleetWorker:
        warm = [worker for worker in workers if task.model in worker.models]
        return self._least.choose(task, warm or workers, look)


Strategy = LeastLoaded | WeightedRoundRobin | Affinity
STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "least_loaded": LeastLoaded,
    "weighted_round_robin": WeightedRoundRobin,
    "affinity": Affinity,
}


def bind(strategy: Strategy, picture: Picture, now: float) -> None:
    """Give what has come to workers' own lines, as the strategy says.

    Tasks with needs of their own stay: where they fit is known when they can start.
    """
    look = StrategyView(picture, now)
    for key in list(picture.grown):
        line = picture.lines.get(key)
        if not line or line.only is not None or line.is_aside:
            continue
        if key in picture.needy:
            continue
        groups = (group.workers.values() for group in line.groups)
        able = [w for workers in groups for w in workers if not w.is_held]
        for task in line.queue.in_order() if able else ():
            picture.bind(task, strategy.choose(task, able, look))
            if line.is_aside:
                break
