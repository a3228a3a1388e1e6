"""Batch limits of job types: how many tasks go to one worker at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from corral.core.access.share import Share
from corral.core.tasks.needs import WHOLE, Need
from corral.scheduler.events import (
    CardOffer,
    NodeOffers,
    OrderClosed,
    ShareSet,
    TasksQueued,
    TasksRan,
    TypeBatched,
    WaitingTask,
    WorkerReady,
)
from corral.scheduler.scheduler import Policy, Scheduler
from corral.scheduler.world.late_tasks import OVERDUE_S

NOW = 1_000_000.0
A = frozenset({"a"})


def serving(
    limit: int | None = 4, workers: int = 1, run_s: float | None = 30.0
) -> Scheduler:
    scheduler = Scheduler(Policy(order_max_bytes=1000))
    for n in range(workers):
        scheduler.apply(WorkerReady(f"w{n}", "n", A))
    scheduler.apply(TypeBatched("a", limit))
    if run_s is not None:
        scheduler.apply(TasksRan("a", "w0", 1, run_s))
    return scheduler


def queue(scheduler: Scheduler, count: int, **more: Any) -> None:
    tasks = (WaitingTask(f"t{n}", 1, "a", n, arrived=NOW) for n in range(count))
    scheduler.apply(TasksQueued(tuple(replace(t, **more) for t in tasks)))


def sizes(scheduler: Scheduler, now: float = NOW) -> list[int]:
    return [len(order.tasks) for order in scheduler.plan(now).orders]


@pytest.mark.spec("C24")
@pytest.mark.parametrize("run_s", [None, 0.001, 30.0])
def test_so_many_tasks_go_to_one_worker_at_once_however_long_they_take(
    run_s: float | None,
) -> None:
    scheduler = serving(run_s=run_s)
    queue(scheduler, 10)
    (order, *_) = scheduler.plan(NOW).orders
    assert [task.task_id for task in order.tasks] == ["t0", "t1", "t2", "t3"]


def test_without_a_limit_long_tasks_go_one_by_one_and_short_ones_together() -> None:
    scheduler = serving(None)
    queue(scheduler, 10)
    assert sizes(scheduler) == [1]
    scheduler = serving(1, run_s=0.001)
    queue(scheduler, 10)
    assert set(sizes(scheduler)) == {1}, "one means one, though they are short"
    scheduler.apply(TypeBatched("a", None))
    scheduler.apply(OrderClosed("w0"))
    assert sizes(scheduler) == [8]


def test_what_waits_is_shared_among_all_who_could_work_on_it() -> None:
    scheduler = serving(4, workers=3)
    queue(scheduler, 6)
    assert sizes(scheduler) == [2, 2, 1], "the last gets its part of what is left"


def test_only_tasks_that_need_the_same_go_together() -> None:
    scheduler = serving(8)
    tasks = [WaitingTask(f"t{n}", 1, "a", n, arrived=NOW) for n in range(6)]
    mixed = [replace(t, model="m") if t.seq % 2 else t for t in tasks]
    scheduler.apply(TasksQueued(tuple(mixed)))
    models = []
    for _ in range(2):
        (order,) = scheduler.plan(NOW).orders
        models.append({task.model for task in order.tasks})
        assert len(order.tasks) == 3
        scheduler.apply(OrderClosed("w0"))
    assert sorted(models, key=str) == [{"m"}, {None}]


def test_tasks_with_needs_or_for_one_worker_go_alone() -> None:
    scheduler = serving(8)
    card = CardOffer("g", "A", "nvidia", 1024)
    scheduler.apply(NodeOffers("n", 64 * WHOLE, 1024, (card,)))
    queue(scheduler, 4, need=Need(cpu_milli=1))
    assert sizes(scheduler) == [1]
    scheduler = serving(8)
    queue(scheduler, 4, worker_id="w0")
    assert sizes(scheduler) == [1]


def test_a_batch_stays_within_the_size_of_an_order_and_a_quota() -> None:
    scheduler = serving(8)
    queue(scheduler, 8, size=400)
    assert sizes(scheduler) == [2]
    scheduler = serving(8)
    scheduler.apply(ShareSet(Share("team=x", max_running=3)))
    queue(scheduler, 8, labels={"team": "x"})
    assert sizes(scheduler) == [3]


def test_a_task_that_goes_out_of_its_turn_takes_others_along() -> None:
    scheduler = serving(3)
    queue(scheduler, 6)
    late = NOW + OVERDUE_S + 1000.0
    fresh = WaitingTask("better", 1, "a", 9, priority=5, arrived=late, size=10)
    scheduler.apply(TasksQueued((fresh,)))
    (order,) = scheduler.plan(late).orders
    assert [task.task_id for task in order.tasks] == ["t0", "better", "t1"]
    scheduler = serving(3)
    queue(scheduler, 3, size=600)
    assert sizes(scheduler, late) == [1], "two would be more than an order may hold"
