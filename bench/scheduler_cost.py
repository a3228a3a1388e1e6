"""What a decision costs: one scheduler, thousands of workers, 200 models.

A decision is what a manager does when a task comes or ends: tell the scheduler, ask
for the plan. What is measured is the processor's time for those two, so that others
on the machine do not count; the garbage collector is set as in the manager.
"""

from __future__ import annotations

import gc
import heapq
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from corral.scheduler.events import (
    AttemptEnded,
    ModelKnown,
    OrderClosed,
    SchedulerEvent,
    TasksQueued,
    TasksRan,
    WaitingTask,
    WorkerReady,
)
from corral.scheduler.plan import PlannedOrder
from corral.scheduler.scheduler import Policy, Scheduler

SIZES = (100, 1_000, 10_000)
LOADS = (0.6, 0.95)
MODELS = 200
TYPE = "generate"
RUN_S, LOAD_S = 14.0, 20.0
# What a worker is busy with a task, those loads counted that come with it.
BUSY_S = 20.0
_START = 1e6


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of a decision, and decisions in a second."""

    workers: int
    load: float
    p50_us: float
    p99_us: float
    per_s: float
    orders: int


class _World:
    """Tasks come at random, workers take as long as they take."""

    def __init__(self, workers: int, load: float) -> None:
        self.chance = random.Random(7)
        self.scheduler = Scheduler(Policy(order_max_tasks=1))
        self.popular = [n**-1.1 for n in range(1, MODELS + 1)]
        self.rate = workers * load / BUSY_S
        self.now, self.count = _START, 0
        self.next_at = _START
        self.running: list[tuple[float, int, str, WaitingTask]] = []
        self.orders = 0
        for event in self._beginning(workers):
            self.scheduler.apply(event)

    def _beginning(self, workers: int) -> Iterator[SchedulerEvent]:
        chance = self.chance
        for number in range(MODELS):
            size_mb = chance.choice((4, 7, 10, 13, 20)) * 1024.0
            yield ModelKnown(f"m{number}", size_mb, LOAD_S)
        for number in range(workers):
            yield WorkerReady(
                f"w{number:05}",
                f"n{number // 8}",
                frozenset([TYPE]),
                speed=chance.choice((0.6, 1.0, 1.5)),
                memory_mb=chance.choice((24, 48, 80)) * 1024.0,
                models=frozenset(self._model() for _ in range(2)),
            )

    def _model(self) -> str:
        return f"m{self.chance.choices(range(MODELS), self.popular)[0]}"

    def next_events(self) -> list[SchedulerEvent]:
        """Time goes on to whatever is next."""
        if self.running and self.running[0][0] < self.next_at:
            self.now, _, worker_id, task = heapq.heappop(self.running)
            return [
                TasksRan(TYPE, worker_id, 1, RUN_S, task.model),
                AttemptEnded(task.task_id, RUN_S),
                OrderClosed(worker_id),
            ]
        self.now = self.next_at
        self.next_at += self.chance.expovariate(self.rate)
        self.count += 1
        name = f"t{self.count}"
        task = WaitingTask(
            name, 1, TYPE, self.count, model=self._model(), arrived=self.now
        )
        return [TasksQueued((task,))]

    def carry_out(self, orders: Sequence[PlannedOrder]) -> None:
        for order in orders:
            took_s = self.chance.lognormvariate(2.5, 0.5) + (
                LOAD_S if order.load else 0.0
            )
            for task in order.tasks:
                self.orders += 1
                end = (self.now + took_s, self.orders, order.worker_id, task)
                heapq.heappush(self.running, end)


def decision_cost(workers: int, load: float, decisions: int) -> Cost:
    """Measure, once the cluster is as full as the load makes it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 1_000)
    world = _World(workers, load)
    scheduler = world.scheduler
    took: list[float] = []
    # As many again before: an empty cluster is an easy one.
    warm = max(decisions // 4, 4 * workers)
    for number in range(warm + decisions):
        events = world.next_events()
        begun = time.thread_time()
        for event in events:
            scheduler.apply(event)
        plan = scheduler.plan(world.now)
        passed = time.thread_time() - begun
        if number >= warm:
            took.append(passed)
        world.carry_out(plan.orders)
    took.sort()
    return Cost(
        workers,
        load,
        1e6 * took[len(took) // 2],
        1e6 * took[int(0.99 * len(took))],
        len(took) / sum(took),
        world.orders,
    )


def keys(costs: Sequence[Cost]) -> dict[str, float]:
    """The worse of both loads counts."""
    found: dict[str, float] = {}
    for size in SIZES:
        some = [cost for cost in costs if cost.workers == size]
        if some:
            found[f"decision_p50_us_{size}"] = max(cost.p50_us for cost in some)
            found[f"decision_p99_us_{size}"] = max(cost.p99_us for cost in some)
            found[f"decisions_per_s_{size}"] = min(cost.per_s for cost in some)
    return found
