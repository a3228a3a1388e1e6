"""Tasks that may not start yet: they need others, or it is too early; and deadlines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from heapq import heappop, heappush

from corral.scheduler.events import WaitingTask


class Delays:
    """Hands on to `enqueue` what may start."""

    def __init__(self, enqueue: Callable[[WaitingTask], None]) -> None:
        self._enqueue = enqueue
        self._now = 0.0
        self._blocked: dict[str, WaitingTask] = {}
        self._dependents: dict[str, set[str]] = {}
        self._later: dict[str, WaitingTask] = {}
        self._due: list[tuple[float, str, int]] = []
        self._deadlines: list[tuple[float, str, int]] = []

    def __len__(self) -> int:
        return len(self._blocked) + len(self._later)

    def admit(self, task: WaitingTask) -> None:
        if task.deadline is not None:
            heappush(self._deadlines, (task.deadline, task.task_id, task.attempt))
        if task.needs:
            self._blocked[task.task_id] = task
            for need in task.needs:
                self._dependents.setdefault(need, set()).add(task.task_id)
        elif task.run_after > 0.0:
            self._later[task.task_id] = task
            heappush(self._due, (task.run_after, task.task_id, task.attempt))
        else:
            self._enqueue(task)

    def unblock(self, task_id: str) -> None:
        """One that others needed has completed."""
        for waiting_id in sorted(self._dependents.pop(task_id, ())):
            task = self._blocked.pop(waiting_id, None)
            if task is not None:
                # It waits in line from now on; before, it waited for others.
                arrived = max(task.arrived, self._now)
                left = task.needs - {task_id}
                self.admit(replace(task, needs=left, arrived=arrived))

    def forget(self, task_id: str) -> None:
        task = self._blocked.pop(task_id, None) or self._later.pop(task_id, None)
        for need in task.needs if task else ():
            self._dependents.get(need, set()).discard(task_id)

    def release(self, now: float) -> None:
        """Hand on what has come due."""
        self._now = now
        while self._due and self._due[0][0] <= now:
            _, task_id, attempt = heappop(self._due)
            task = self._later.get(task_id)
            if task is not None and task.attempt == attempt:
                del self._later[task_id]
                if attempt <= 1 and task.arrived < task.run_after:
                    task = replace(task, arrived=task.run_after)
                self._enqueue(task)

    def past(self, now: float) -> Iterable[tuple[str, int]]:
        """Tasks and attempts whose deadline has passed; many may wait no more."""
        while self._deadlines and self._deadlines[0][0] <= now:
            _, task_id, attempt = heappop(self._deadlines)
            yield task_id, attempt

    def next_at(self) -> float | None:
        """When time alone will change something."""
        times = [heap[0][0] for heap in (self._due, self._deadlines) if heap]
        return min(times, default=None)

    def get(self, task_id: str) -> WaitingTask | None:
        return self._blocked.get(task_id) or self._later.get(task_id)

    def tasks(self) -> list[WaitingTask]:
        return [*self._blocked.values(), *self._later.values()]

    def dependents(self, task_id: str) -> tuple[str, ...]:
        """Tasks that still wait for this one."""
        return tuple(sorted(self._dependents.get(task_id, ())))
