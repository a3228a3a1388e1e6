"""The strategies that bind a task when it comes, as each of them says it does."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest

from corral.core.tasks.needs import Need
from corral.scheduler.decide.strategies import STRATEGIES
from corral.scheduler.events import (
    AttemptEnded,
    ModelKnown,
    NodeOffers,
    OrderClosed,
    TasksGone,
    TasksQueued,
    TasksRan,
    WaitingTask,
    WorkerGone,
    WorkerReady,
)
from corral.scheduler.plan import PlannedOrder
from corral.scheduler.scheduler import Policy, Scheduler
from corral.settings.tasks import Strategy

TYPE = frozenset({"draw"})


class Shop:
    """Workers of which each does what it was given when it is told to."""

    def __init__(self, strategy: str, **speeds: float) -> None:
        self.scheduler = Scheduler(Policy(order_max_tasks=1, strategy=strategy))
        self.now = 1000.0
        self.count = 0
        for model in ("a", "b"):
            self.scheduler.apply(ModelKnown(model, 6.0, 10.0))
        for name, speed in speeds.items():
            ready = WorkerReady(name, name, TYPE, speed=speed, memory_mb=8.0)
            self.scheduler.apply(ready)
        self.scheduler.apply(TasksRan("draw", next(iter(speeds)), 1, 1.0))

    def ask(self, *models: str | None) -> list[PlannedOrder]:
        """Tasks come together; what is sent at once."""
        tasks = []
        for model in models:
            self.count += 1
            name = f"t{self.count}"
            told = {"model": model, "arrived": self.now}
            tasks.append(WaitingTask(name, 1, "draw", self.count, **told))  # type: ignore[arg-type]
        self.scheduler.apply(TasksQueued(tuple(tasks)))
        return self.plan()

    def plan(self) -> list[PlannedOrder]:
        return list(self.scheduler.plan(self.now).orders)

    def close(self, worker: str) -> list[PlannedOrder]:
        self.now += 1.0
        self.scheduler.apply(OrderClosed(worker))
        return self.plan()

    def given(self, orders: list[PlannedOrder]) -> list[tuple[str, str]]:
        """Everything, in the order workers get through it."""
        found = []
        while orders:
            order = orders.pop(0)
            found += [(order.worker_id, task.task_id) for task in order.tasks]
            orders += self.close(order.worker_id)
        return found


def test_every_strategy_has_a_name_that_settings_know() -> None:
    assert set(get_args(Strategy)) == {"smith", *STRATEGIES}


@pytest.mark.spec("C18")
def test_round_robin_gives_the_faster_one_as_much_more() -> None:
    shop = Shop("weighted_round_robin", fast=2.0, slow=1.0)
    given = shop.given(shop.ask(*[None] * 30))
    assert Counter(worker for worker, _ in given) == {"fast": 20, "slow": 10}


def test_round_robin_takes_turns_though_one_has_the_model() -> None:
    shop = Shop("weighted_round_robin", one=1.0, two=1.0)
    orders = [shop.ask("a") for _ in range(4)]
    sent = [order.worker_id for each in orders for order in each]
    assert len(sent) == 2, "the others wait in their workers' lines"
    assert set(sent) == {"one", "two"}


@pytest.mark.spec("C20")
def test_least_loaded_counts_seconds_of_work_and_of_loads() -> None:
    shop = Shop("least_loaded", one=1.0, two=1.0)
    assert [o.worker_id for o in shop.ask("a")] == ["one"]
    shop.close("one")
    # Nine tasks of a second each where the model is: sooner than to load it again.
    assert [o.worker_id for o in shop.ask(*["a"] * 9)] == ["one"]
    assert [o.worker_id for o in shop.ask("b")] == ["two"]
    # Of many more so many that both are through at once: 9 + 21 = 11 + 10 + 9 seconds.
    assert shop.ask(*["a"] * 30) == []
    given = shop.given([*shop.close("one"), *shop.close("two")])
    assert Counter(worker for worker, _ in given) == {"one": 8 + 21, "two": 9}


@pytest.mark.spec("C21")
def test_affinity_stays_with_who_has_the_model_however_long_its_line() -> None:
    shop = Shop("affinity", one=1.0, two=1.0)
    given = shop.given(shop.ask(*["a"] * 40))
    home = given[0][0]
    assert {worker for worker, _ in given[1:]} <= {home, given[1][0]}
    orders = shop.ask("a")
    assert [o.worker_id for o in orders] == [home]


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_what_was_bound_to_a_worker_that_is_gone_goes_to_another(strategy: str) -> None:
    shop = Shop(strategy, one=1.0, two=1.0)
    first = shop.ask(*[None] * 20)
    shop.scheduler.apply(WorkerGone("one"))
    given = shop.given([o for o in first + shop.plan() if o.worker_id == "two"])
    assert len(given) == 20 - sum(o.worker_id == "one" for o in first)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_a_cancelled_task_leaves_the_line_it_was_bound_to(strategy: str) -> None:
    shop = Shop(strategy, one=1.0)
    orders = shop.ask(None, None, None)
    shop.scheduler.apply(TasksGone(("t2",)))
    assert [task for _, task in shop.given(orders)] == ["t1", "t3"]


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_tasks_with_needs_are_bound_to_nobody_and_never_too_many(strategy: str) -> None:
    scheduler = Scheduler(Policy(order_max_tasks=1, strategy=strategy))
    scheduler.apply(NodeOffers("n", 1000, 1000))
    for name in ("one", "two"):
        scheduler.apply(WorkerReady(name, "n", TYPE))
    both = [
        WaitingTask(f"t{n}", 1, "draw", n, need=Need(cpu_milli=800)) for n in (1, 2)
    ]
    scheduler.apply(TasksQueued(tuple(both)))
    (first,) = scheduler.plan(1000.0).orders
    assert scheduler.plan(1001.0).orders == ()
    scheduler.apply(AttemptEnded("t1", 1.0))
    scheduler.apply(OrderClosed(first.worker_id))
    (second,) = scheduler.plan(1002.0).orders
    assert [t.task_id for t in (*first.tasks, *second.tasks)] == ["t1", "t2"]
