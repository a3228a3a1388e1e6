"""What goes where: order, sizes, workers; and what the scheduler has learned."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.scheduler.events import (
    DependencyMet,
    OrderClosed,
    TasksGone,
    TasksQueued,
    TasksRan,
    WaitingTask,
    WorkerReady,
)
from corral.scheduler.learn.estimate import Estimates
from corral.scheduler.plan import Plan
from corral.scheduler.scheduler import Policy, Scheduler

NOW = 1000.0
POLICY = Policy()


def serving(*workers: WorkerReady) -> Scheduler:
    scheduler = Scheduler(POLICY)
    for worker in workers or (WorkerReady("w1", "n1", frozenset({"a"})),):
        scheduler.apply(worker)
    return scheduler


def queued(count: int, job_type: str = "a", **more: object) -> TasksQueued:
    tasks = [
        WaitingTask(f"{job_type}{n}", 1, job_type, n, **more)  # type: ignore[arg-type]
        for n in range(count)
    ]
    return TasksQueued(tuple(tasks))


def ids(plan: Plan) -> list[list[str]]:
    return [[t.task_id for t in order.tasks] for order in plan.orders]


def test_a_type_nothing_is_known_of_goes_out_one_task_at_a_time() -> None:
    scheduler = serving(WorkerReady("w1", "n1", frozenset({"a"}), slots=2))
    scheduler.apply(queued(5))
    assert ids(scheduler.plan(NOW)) == [["a0"], ["a1"]]


def test_a_task_waits_in_the_manager_while_its_worker_is_busy() -> None:
    scheduler = serving()
    scheduler.apply(queued(2))
    assert ids(scheduler.plan(NOW)) == [["a0"]]
    assert ids(scheduler.plan(NOW)) == []
    scheduler.apply(OrderClosed("w1"))
    assert ids(scheduler.plan(NOW)) == [["a1"]]


def test_tiny_tasks_travel_in_batches_and_one_order_ahead() -> None:
    scheduler = serving()
    scheduler.apply(TasksRan("a", "w1", 100, 0.001))
    scheduler.apply(queued(1000))
    sizes = [len(order) for order in ids(scheduler.plan(NOW))]
    assert sizes == [POLICY.order_max_tasks] * 2


def test_who_is_late_with_tiny_tasks_gets_none_ahead() -> None:
    scheduler = serving()
    scheduler.apply(TasksRan("a", "w1", 100, 0.001))
    scheduler.apply(queued(1))
    assert len(ids(scheduler.plan(NOW))) == 1
    late = NOW + POLICY.ahead_late_s + 0.01
    scheduler.apply(TasksQueued((WaitingTask("next", 1, "a", 9),)))
    assert ids(scheduler.plan(late)) == []
    scheduler.apply(OrderClosed("w1"))
    assert len(ids(scheduler.plan(late))) == 1


@given(st.floats(1e-6, 10.0), st.integers(1, 500), st.integers(1, 4))
def test_an_order_is_a_few_milliseconds_of_work_or_one_task(
    each_s: float, count: int, slots: int
) -> None:
    scheduler = serving(WorkerReady("w1", "n1", frozenset({"a"}), slots))
    scheduler.apply(TasksRan("a", "w1", 1, each_s))
    scheduler.apply(queued(count))
    for order in ids(scheduler.plan(NOW)):
        assert len(order) <= POLICY.order_max_tasks
        assert len(order) == 1 or len(order) * each_s <= POLICY.order_budget_s * 1.001


def test_a_short_queue_is_shared_among_all_who_can_work() -> None:
    types = frozenset({"a"})
    scheduler = serving(WorkerReady("w1", "n1", types), WorkerReady("w2", "n2", types))
    scheduler.apply(TasksRan("a", "w1", 100, 0.001))
    scheduler.apply(queued(10))
    plan = scheduler.plan(NOW)
    assert {order.worker_id for order in plan.orders[:2]} == {"w1", "w2"}
    assert len(plan.orders[0].tasks) == 5


def test_large_payloads_make_small_orders() -> None:
    scheduler = serving()
    scheduler.apply(TasksRan("a", "w1", 100, 0.001))
    scheduler.apply(queued(10, size=POLICY.order_max_bytes // 2))
    assert [len(order) for order in ids(scheduler.plan(NOW))] == [2, 2]


def test_one_task_larger_than_an_order_still_goes() -> None:
    scheduler = serving()
    scheduler.apply(TasksRan("a", "w1", 100, 0.001))
    scheduler.apply(queued(2, size=POLICY.order_max_bytes * 3))
    assert ids(scheduler.plan(NOW)) == [["a0"], ["a1"]]


def test_higher_priority_goes_first_and_then_who_came_first() -> None:
    scheduler = serving(WorkerReady("w1", "n1", frozenset({"a"}), slots=4))
    rows = [("low", -10, 1), ("first", 0, 2), ("second", 0, 3), ("urgent", 100, 4)]
    for name, priority, seq in rows:
        scheduler.apply(TasksQueued((WaitingTask(name, 1, "a", seq, priority),)))
    assert ids(scheduler.plan(NOW)) == [["urgent"], ["first"], ["second"], ["low"]]


def test_an_urgent_task_takes_the_next_free_worker_before_all_that_waited() -> None:
    both = frozenset({"a", "b"})
    scheduler = serving(WorkerReady("w1", "n1", both))
    scheduler.apply(queued(50))
    scheduler.plan(NOW)
    urgent = WaitingTask("urgent", 1, "b", 999, priority=100)
    scheduler.apply(TasksQueued((urgent,)))
    scheduler.apply(OrderClosed("w1"))
    assert ids(scheduler.plan(NOW)) == [["urgent"]]


def test_a_type_without_a_worker_does_not_hold_up_another() -> None:
    scheduler = serving()
    stuck = WaitingTask("stuck", 1, "nobody", 1, priority=100)
    scheduler.apply(TasksQueued((stuck, WaitingTask("a0", 1, "a", 2))))
    assert ids(scheduler.plan(NOW)) == [["a0"]]


def test_the_worker_with_the_fewest_open_orders_for_its_slots_is_chosen() -> None:
    types = frozenset({"a"})
    scheduler = serving(
        WorkerReady("w1", "n1", types, slots=2, open_orders=1),
        WorkerReady("w2", "n1", types, slots=4, open_orders=1),
    )
    scheduler.apply(queued(1))
    assert scheduler.plan(NOW).orders[0].worker_id == "w2"


def test_a_task_waits_for_all_its_dependencies() -> None:
    scheduler = serving()
    task = WaitingTask("t", 1, "a", 1, needs=frozenset({"x", "y"}))
    scheduler.apply(TasksQueued((task,)))
    assert scheduler.dependents("x") == ("t",)
    scheduler.apply(DependencyMet("x"))
    assert ids(scheduler.plan(NOW)) == []
    scheduler.apply(DependencyMet("y"))
    assert ids(scheduler.plan(NOW)) == [["t"]]


def test_a_dependency_met_leaves_the_later_start_in_force() -> None:
    scheduler = serving()
    task = WaitingTask("t", 1, "a", 1, run_after=NOW + 5, needs=frozenset({"x"}))
    scheduler.apply(TasksQueued((task,)))
    scheduler.apply(DependencyMet("x"))
    plan = scheduler.plan(NOW)
    assert (ids(plan), plan.next_wake) == ([], NOW + 5)
    assert ids(scheduler.plan(NOW + 5)) == [["t"]]


def test_a_cancelled_dependent_is_no_longer_waited_for() -> None:
    scheduler = serving()
    task = WaitingTask("t", 1, "a", 1, needs=frozenset({"x"}))
    scheduler.apply(TasksQueued((task,)))
    scheduler.apply(TasksGone(("t",)))
    assert scheduler.dependents("x") == ()
    scheduler.apply(DependencyMet("x"))
    assert ids(scheduler.plan(NOW)) == []


def test_the_plan_says_when_time_alone_changes_it() -> None:
    scheduler = serving()
    late = WaitingTask("late", 1, "a", 1, run_after=NOW + 9)
    dies = WaitingTask("dies", 1, "z", 2, deadline=NOW + 4)
    scheduler.apply(TasksQueued((late, dies)))
    assert scheduler.plan(NOW).next_wake == NOW + 4
    plan = scheduler.plan(NOW + 4)
    assert [t.task_id for t in plan.expired] == ["dies"]
    assert plan.next_wake == NOW + 9


def test_a_mean_moves_toward_what_was_measured_last() -> None:
    durations = Estimates()
    assert durations.recent_s("a") is None
    durations.learn("a", 2, 2.0)
    assert durations.recent_s("a") == 1.0
    durations.learn("a", 1, 0.0)
    assert durations.recent_s("a") == pytest.approx(0.7)


def test_a_type_that_turned_slow_is_believed_at_once() -> None:
    durations = Estimates()
    durations.learn("a", 100, 0.01)
    durations.learn("a", 1, 30.0)
    assert durations.recent_s("a") == 30.0


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0.0, 100.0)), min_size=1))
def test_a_mean_stays_within_what_was_measured(ran: list[tuple[int, float]]) -> None:
    durations = Estimates()
    for count, each_s in ran:
        durations.learn("a", count, count * each_s)
    mean = durations.recent_s("a")
    assert mean is not None
    slack = 1e-6
    assert min(s for _, s in ran) - slack <= mean <= max(s for _, s in ran) + slack


def test_the_wait_is_nothing_while_a_worker_is_free_and_unknown_without_one() -> None:
    assert Scheduler().estimated_wait_s("a") is None
    scheduler = serving()
    assert scheduler.estimated_wait_s("a") == 0.0
    scheduler.apply(queued(1))
    scheduler.plan(NOW)
    assert scheduler.estimated_wait_s("a") is None, "how long it takes is not known"


def test_the_wait_grows_with_the_queue_and_shrinks_with_the_workers() -> None:
    scheduler = serving(WorkerReady("w1", "n1", frozenset({"a"}), slots=2))
    scheduler.apply(TasksRan("a", "w1", 1, 6.0))
    scheduler.apply(queued(5))
    scheduler.plan(NOW)
    assert scheduler.estimated_wait_s("a") == pytest.approx(6.0 * (3 + 1) / 2)
