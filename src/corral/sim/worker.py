"""A worker in virtual time: slots, memory, models; refuses broken plans."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from corral.scheduler.events import WaitingTask
from corral.scheduler.plan import PlannedOrder
from corral.sim.machine import Machine
from corral.sim.workload import Arrival, Model


class BrokenPlan(AssertionError):
    """A plan that no worker could carry out: a fault of the scheduler."""


@dataclass(frozen=True, slots=True)
class RunningOrder:
    """An order under way: when each of its tasks ends, and when all have."""

    order: PlannedOrder
    ends: tuple[tuple[float, WaitingTask], ...]
    loaded_at: float
    over_at: float


@dataclass(slots=True)
class SimulatedWorker:
    """`epoch` counts its lives: what ends in an earlier one never happened."""

    machine: Machine
    models: dict[str, Model]
    arrivals: dict[str, Arrival]
    is_up: bool = False
    epoch: int = 0
    waiting: deque[PlannedOrder] = field(default_factory=deque)
    running: dict[int, RunningOrder] = field(default_factory=dict)
    loaded: dict[str, float] = field(default_factory=dict)
    """Models in memory, and from when on they can be used."""
    loads: int = 0
    loading_s: float = 0.0
    busy_s: float = 0.0

    @property
    def has_slot(self) -> bool:
        return self.is_up and len(self.running) < self.machine.slots

    def begin(self, order: PlannedOrder, now: float) -> RunningOrder:
        """Start an order, as far as memory goes: drop, load, run one by one."""
        ready_at = now
        for model in order.unload:
            self.loaded.pop(model, None)
        if order.load is not None:
            ready_at = self._load(order.load, now)
        at, ends = ready_at, []
        for task in order.tasks:
            if task.model is not None:
                at = max(at, self._ready(task.model))
            at += self.arrivals[task.task_id].run_s / self.machine.speed
            ends.append((at, task))
        return RunningOrder(order, tuple(ends), ready_at, at)

    def _load(self, name: str, now: float) -> float:
        model = self.models[name]
        if name not in self.loaded:
            self.loads += 1
            self.loading_s += model.load_s
            self.loaded[name] = now + model.load_s
        used_mb = sum(self.models[m].size_mb for m in self.loaded)
        if self.machine.memory_mb is not None and used_mb > self.machine.memory_mb:
            raise BrokenPlan(
                f"{self.machine.name} was told to hold {used_mb:.0f} MB in "
                f"{self.machine.memory_mb:.0f} MB: {sorted(self.loaded)}"
            )
        return self.loaded[name]

    def _ready(self, name: str) -> float:
        if name not in self.loaded:
            raise BrokenPlan(f"{self.machine.name} runs {name} without having it")
        return self.loaded[name]

    def fall(self, now: float) -> list[WaitingTask]:
        """Go down; what it had not finished."""
        lost = [task for order in self.waiting for task in order.tasks]
        for running in self.running.values():
            lost += [task for end, task in running.ends if end > now]
        self.is_up = False
        self.epoch += 1
        self.waiting.clear()
        self.running.clear()
        self.loaded.clear()
        return lost
