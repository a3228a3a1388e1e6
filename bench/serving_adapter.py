"""The product's scheduler behind the serving simulator's policy interface."""

from __future__ import annotations

from typing import Any

from corral.scheduler.events import (
    ModelKnown,
    OrderClosed,
    TasksQueued,
    TasksRan,
    WaitingTask,
    WorkerGone,
    WorkerReady,
)
from corral.scheduler.scheduler import Policy, Scheduler

TYPE = "generate"


class Corral:
    """One scheduler fed with what a manager would know."""

    policy = Policy(order_max_tasks=1)

    def __init__(self, sim: Any) -> None:
        self.sim = sim
        self.scheduler = Scheduler(self.policy)
        self.planned: dict[int, Any] = {}
        self.running: dict[int, tuple[Any, float, int]] = {}
        self.tries: dict[int, int] = {}
        for model in sim.size:
            size_mb = sim.size[model] * 1024
            self.scheduler.apply(ModelKnown(model, size_mb, sim.load[model]))
        self.epochs: dict[int, int] = {}

    def _look(self) -> None:
        """Deaths and returns of workers since the last look."""
        for worker in self.sim.w:
            name = f"w{worker.i:03}"
            if worker.running is None:
                self._closed(worker)
            if worker.up and self.epochs.get(worker.i) != worker.epoch:
                self.epochs[worker.i] = worker.epoch
                self.planned.pop(worker.i, None)
                self.running.pop(worker.i, None)
                about = {"speed": worker.speed, "memory_mb": worker.mem * 1024}
                ready = WorkerReady(name, name, frozenset([TYPE]), **about)
                self.scheduler.apply(ready)
            elif not worker.up and self.epochs.pop(worker.i, None) is not None:
                self.running.pop(worker.i, None)
                self.scheduler.apply(WorkerGone(name))
                if (order := self.planned.pop(worker.i, None)) is not None:
                    self.scheduler.apply(TasksQueued(order.tasks))

    def assign(self, task: Any) -> None:
        self._look()
        self.tries[task.id] = self.tries.get(task.id, 0) + 1
        waiting = WaitingTask(
            task_id=str(task.id),
            attempt=self.tries[task.id],
            job_type=TYPE,
            seq=task.id + 1,
            priority=10 * task.priority,
            model=task.model,
            arrived=max(task.arrival, 1e-6),
            units=task.images,
        )
        self.scheduler.apply(TasksQueued((waiting,)))

    def pull(self, worker: Any, tasks: list[Any]) -> Any:
        self._look()
        if worker.i not in self.planned:
            for order in self.scheduler.plan(self.sim.now).orders:
                self.planned[int(order.worker_id[1:])] = order
            for index in [i for i in self.planned if i != worker.i]:
                self.sim.start(self.sim.w[index])
        order = self.planned.pop(worker.i, None)
        if order is None:
            return None
        self.drop: list[str] = list(order.unload)
        task = self.sim.tasks[int(order.tasks[0].task_id)]
        load_s = self.sim.load[task.model] if order.load else 0.0
        self.running[worker.i] = (task, self.sim.now + load_s, worker.epoch)
        return task

    def _closed(self, worker: Any) -> None:
        ran = self.running.pop(worker.i, None)
        if ran is None or ran[2] != worker.epoch:
            return
        name, (task, began, _) = f"w{worker.i:03}", ran
        seconds = task.arrival + self.sim.done[task.id] - began
        self.scheduler.apply(TasksRan(TYPE, name, 1, seconds, task.model, task.images))
        self.scheduler.apply(OrderClosed(name))

    def victim(self, worker: Any, model: str) -> str:
        return self.drop.pop(0)
