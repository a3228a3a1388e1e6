"""Which running tasks make room for critical ones, where that is allowed.

Only tasks that say so are stopped, only when no worker has room or soon will, and only
where more is left of them than the critical one takes.
"""

from __future__ import annotations

from collections.abc import Iterator

from corral.scheduler.events import WaitingTask
from corral.scheduler.learn.estimate import Estimates
from corral.scheduler.plan import Stop
from corral.scheduler.world.decision import Decision
from corral.scheduler.world.fleet import FleetWorker
from corral.scheduler.world.line import CRITICAL, TaskLine
from corral.scheduler.world.picture import Picture

_LOOK_AGAIN_S = 1.0


class Preemption:
    def __init__(self, picture: Picture, estimates: Estimates) -> None:
        self._picture = picture
        self._estimates = estimates
        # Workers that were told to stop something, and what that was.
        self._asked: dict[str, Decision] = {}
        self.look_at: float | None = None
        """When time alone may call for more."""

    def choose(self, now: float) -> tuple[Stop, ...]:
        """What must stop now; each is asked for once."""
        self._forget()
        self.look_at = None
        found: list[Stop] = []
        for line in list(self._picture.lines.values()):
            for task in self._critical(line):
                decision = self._victim(line, task, now)
                if decision is None:
                    self.look_at = now + _LOOK_AGAIN_S
                    break
                self._asked[decision.worker_id] = decision
                found += [
                    Stop(decision.worker_id, t.task_id, t.attempt)
                    for t in decision.tasks
                ]
        return tuple(found)

    def _critical(self, line: TaskLine) -> list[WaitingTask]:
        """Critical tasks of a line for which nothing is being stopped yet."""
        head = line.queue.head() if line.counts_priority else None
        if head is None or head.priority < CRITICAL or line.is_aside:
            return []
        waiting = [t for t in line.queue.front() if t.priority >= CRITICAL]
        coming = sum(1 for w in self._workers(line) if w.worker_id in self._asked)
        return waiting[coming:]

    def _workers(self, line: TaskLine) -> Iterator[FleetWorker]:
        for group in line.groups:
            for worker in group.workers.values():
                if not worker.is_held and line.only in (None, worker.worker_id):
                    yield worker

    def _victim(self, line: TaskLine, task: WaitingTask, now: float) -> Decision | None:
        best: tuple[tuple[int, float, str], Decision] | None = None
        for worker in self._workers(line):
            if worker.has_room or self._is_soon_free(worker, task, now):
                # It has room, or will have sooner than a stop would help.
                if worker.worker_id not in self._asked:
                    return None
                continue
            decision = self._lesser(worker)
            if decision is not None:
                most = max(t.priority for t in decision.tasks)
                rank = (most, -decision.at, worker.worker_id)
                if best is None or rank < best[0]:
                    best = rank, decision
        return best[1] if best is not None else None

    def _is_soon_free(self, worker: FleetWorker, task: WaitingTask, now: float) -> bool:
        """Will it have room by itself before the critical task could be through?

        Of what never ran before nobody knows when it ends: that is not waited for.
        """
        open_orders = worker.given[-worker.open_orders :] if worker.open_orders else ()
        kinds = [(t.job_type, t.model, t.units) for o in open_orders for t in o.tasks]
        if not all(self._estimates.run(*kind) for kind in kinds):
            return False
        return worker.residual_s(now) <= self._needs_s(worker, task)

    def _lesser(self, worker: FleetWorker) -> Decision | None:
        """An order of a worker that may be stopped."""
        if worker.worker_id in self._asked or not worker.open_orders:
            return None
        for decision in reversed(worker.given[-worker.open_orders :]):
            if all(t.preemptible and t.priority < CRITICAL for t in decision.tasks):
                return decision
        return None

    def _needs_s(self, worker: FleetWorker, task: WaitingTask) -> float:
        run_s = self._estimates.run_s(task.job_type, task.model, task.units)
        is_loaded = task.model is None or task.model in worker.models
        load_s = 0.0 if is_loaded else self._estimates.load_s(task.model or "")
        return load_s + run_s / worker.speed

    def _forget(self) -> None:
        """What was asked for has happened, or its worker is gone."""
        workers = self._picture.fleet.workers
        for worker_id, decision in list(self._asked.items()):
            worker = workers.get(worker_id)
            count = worker.open_orders if worker else 0
            if worker is None or not count or decision not in worker.given[-count:]:
                del self._asked[worker_id]
