"""Which waiting task of a type is next: by priority, first in first out, or a stack."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.tasks.job_type import QueueOrder
from corral.scheduler.events import (
    OrderClosed,
    TasksGone,
    TasksQueued,
    TypeOrdered,
    TypesServed,
    WaitingTask,
    WorkerReady,
)
from corral.scheduler.scheduler import Scheduler
from corral.scheduler.world.line import TaskQueue

PRIORITIES = (0, 5, -10, 5, 100)
WANTED = {
    QueueOrder.PRIORITY: [4, 1, 3, 0, 2],
    QueueOrder.FIFO: [0, 1, 2, 3, 4],
    QueueOrder.STACK: [4, 3, 2, 1, 0],
}


def tasks(job_type: str = "a", first: int = 0) -> tuple[WaitingTask, ...]:
    return tuple(
        WaitingTask(f"{job_type}{n}", 1, job_type, first + n, priority)
        for n, priority in enumerate(PRIORITIES)
    )


def drain(scheduler: Scheduler) -> list[str]:
    """Everything one worker takes, one after the other."""
    taken = []
    while orders := scheduler.plan(1.0).orders:
        taken += [t.task_id for order in orders for t in order.tasks]
        scheduler.apply(OrderClosed("w"))
    return taken


def serving(*job_types: str) -> Scheduler:
    scheduler = Scheduler()
    scheduler.apply(WorkerReady("w", "n", frozenset(job_types)))
    return scheduler


@pytest.mark.parametrize("order", list(QueueOrder))
def test_each_order_takes_the_tasks_as_it_says(order: QueueOrder) -> None:
    scheduler = serving("a")
    scheduler.apply(TypeOrdered("a", order))
    scheduler.apply(TasksQueued(tasks()))
    assert drain(scheduler) == [f"a{n}" for n in WANTED[order]]


@pytest.mark.parametrize("order", list(QueueOrder))
def test_an_order_changed_later_holds_for_those_who_wait(order: QueueOrder) -> None:
    scheduler = serving("a")
    scheduler.apply(TasksQueued(tasks()))
    scheduler.apply(TasksGone(("a1",)))
    scheduler.apply(TypeOrdered("a", order))
    assert drain(scheduler) == [f"a{n}" for n in WANTED[order] if n != 1]


def test_without_a_word_it_is_priority() -> None:
    scheduler = serving("a")
    scheduler.apply(TasksQueued(tasks()))
    assert drain(scheduler) == [f"a{n}" for n in WANTED[QueueOrder.PRIORITY]]


def test_a_stack_is_not_starved_by_a_type_that_shares_its_worker() -> None:
    scheduler = serving("a", "b")
    scheduler.apply(TypeOrdered("a", QueueOrder.STACK))
    scheduler.apply(TypeOrdered("b", QueueOrder.FIFO))
    scheduler.apply(TasksQueued(tasks("a", first=0)))
    scheduler.apply(TasksQueued(tasks("b", first=10)))
    taken = drain(scheduler)
    assert taken[:5] == ["a4", "a3", "a2", "a1", "a0"]


def test_the_place_told_to_a_waiting_task_is_that_of_its_order() -> None:
    queue = TaskQueue(QueueOrder.STACK)
    for task in tasks():
        queue.push(task)
    assert [queue.position(task) for task in tasks()] == [4, 3, 2, 1, 0]


def test_waiting_tasks_are_counted_whatever_they_wait_for() -> None:
    scheduler = Scheduler()
    later = WaitingTask("later", 1, "a", 9, run_after=500.0)
    blocked = WaitingTask("blocked", 1, "a", 10, needs=frozenset({"a0"}))
    scheduler.apply(TasksQueued((*tasks(), later, blocked, *tasks("b", 20))))
    assert scheduler.waiting_by_type() == Counter({"a": 7, "b": 5})
    assert set(scheduler.waiting_ids("a")) == {
        *(f"a{n}" for n in range(5)),
        "later",
        "blocked",
    }
    assert scheduler.waiting_ids("unknown") == []


def test_a_worker_can_be_given_other_types_while_it_works() -> None:
    scheduler = serving("a")
    scheduler.apply(TasksQueued((*tasks("a"), *tasks("b", 10))))
    assert len(scheduler.plan(1.0).orders) == 1
    scheduler.apply(TypesServed("w", frozenset({"b"})))
    assert not scheduler.plan(1.0).orders
    scheduler.apply(OrderClosed("w"))
    (order,) = scheduler.plan(1.0).orders
    assert order.tasks[0].job_type == "b"


@given(
    st.lists(st.integers(-5, 5), min_size=1, max_size=40), st.sampled_from(QueueOrder)
)
def test_every_order_hands_out_every_task_once(
    priorities: list[int], order: QueueOrder
) -> None:
    queue = TaskQueue(order)
    for seq, priority in enumerate(priorities):
        queue.push(WaitingTask(f"t{seq}", 1, "a", seq, priority))
    taken = [task.seq for task in queue.take(100, 1 << 20)]
    assert sorted(taken) == list(range(len(priorities)))
    if order is QueueOrder.FIFO:
        assert taken == sorted(taken)
    elif order is QueueOrder.STACK:
        assert taken == sorted(taken, reverse=True)
    else:
        assert taken == sorted(taken, key=lambda n: (-priorities[n], n))
