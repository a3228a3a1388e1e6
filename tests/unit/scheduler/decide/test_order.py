"""Who goes first: weights and age, near deadlines, those who have waited too long."""

from __future__ import annotations

from dataclasses import replace

from corral.scheduler.events import (
    DependencyMet,
    ModelKnown,
    OrderClosed,
    TasksQueued,
    TasksRan,
    WaitingTask,
    WorkerGone,
    WorkerReady,
)
from corral.scheduler.scheduler import Policy, Scheduler
from corral.scheduler.world.late_tasks import OVERDUE_S

NOW = 1_000_000.0
BOTH = frozenset({"a", "b"})


def task(name: str, seq: int, **more: object) -> WaitingTask:
    made = WaitingTask(name, 1, "a", seq, arrived=NOW)
    return replace(made, **more)  # type: ignore[arg-type]


def busy(*tasks: WaitingTask, run_s: float = 10.0, workers: int = 1) -> Scheduler:
    """Workers that have something, and these wait."""
    scheduler = Scheduler(Policy(order_max_tasks=1))
    for n in range(workers):
        scheduler.apply(WorkerReady(f"w{n}", "n", BOTH))
        scheduler.apply(TasksQueued((task(f"first{n}", n),)))
    for job_type in BOTH:
        scheduler.apply(TasksRan(job_type, "w0", 1, run_s))
    assert len(scheduler.plan(NOW).orders) == workers
    scheduler.apply(TasksQueued(tasks))
    return scheduler


def next_ones(scheduler: Scheduler, count: int, now: float, worker: str = "w0") -> str:
    """What a worker takes, one after the other."""
    taken = []
    for _ in range(count):
        scheduler.apply(OrderClosed(worker))
        taken += [t.task_id for o in scheduler.plan(now).orders for t in o.tasks]
    return " ".join(taken)


def test_high_is_worth_many_normal_ones_of_another_type_but_not_all() -> None:
    high = task("high", 9, job_type="b", priority=10)
    assert next_ones(busy(task("old", 1), high), 1, NOW) == "high"
    # Fifty times as long is as much weight in a second; then who came first.
    scheduler = busy(task("old", 1), high)
    for _ in range(40):
        scheduler.apply(TasksRan("b", "w0", 1, 5000.0))
    assert next_ones(scheduler, 1, NOW) == "old"


def test_a_near_deadline_goes_before_what_came_first() -> None:
    tasks = [task(f"t{n}", n) for n in range(20)]
    soon = task("soon", 99, deadline=NOW + 40)
    later = task("later", 98, deadline=NOW + 9000)
    assert next_ones(busy(*tasks, soon, later), 2, NOW) == "soon t0"


def test_a_near_deadline_raises_a_type_above_another() -> None:
    soon = task("soon", 99, job_type="b", deadline=NOW + 15)
    assert next_ones(busy(task("t", 1), soon), 2, NOW) == "soon t"


def test_no_deadline_goes_before_a_higher_priority_of_its_type_or_a_critical() -> None:
    soon = task("soon", 99, deadline=NOW + 12)
    higher = task("higher", 100, priority=1)
    critical = task("critical", 101, job_type="b", priority=100)
    scheduler = busy(soon, higher, critical)
    assert next_ones(scheduler, 3, NOW) == "critical higher soon"


def test_what_cannot_be_through_in_time_holds_up_nobody() -> None:
    lost = task("lost", 99, deadline=NOW + 3)
    assert next_ones(busy(task("t", 1), lost), 1, NOW) == "t"


def test_one_that_waited_too_long_passes_better_ones_of_its_type_once() -> None:
    better = [task(f"b{n}", 100 + n, priority=5) for n in range(3)]
    scheduler = busy(task("low0", 1, priority=-5), task("low1", 2, priority=-5))
    now = NOW + OVERDUE_S + 1
    scheduler.apply(TasksQueued(tuple(replace(t, arrived=now) for t in better)))
    assert next_ones(scheduler, 5, now) == "low0 b0 b1 b2 low1"


def test_a_better_one_that_nobody_here_can_run_any_more_forbids_nothing() -> None:
    scheduler = busy(task("low0", 1, priority=-5), task("low1", 2, priority=-5))
    now = NOW + OVERDUE_S + 1
    own = task("own", 100, priority=5, worker_id="w9", arrived=now)
    better = task("better", 101, priority=5, arrived=now)
    scheduler.apply(TasksQueued((own, better)))
    assert next_ones(scheduler, 3, now) == "low0 better low1"


def test_those_who_waited_too_long_take_turns_with_the_rest() -> None:
    late = [task(f"late{n}", n) for n in range(3)]
    scheduler = busy(*late)
    now = NOW + OVERDUE_S + 1
    heavy = [
        task(f"h{n}", 100 + n, job_type="b", priority=10, arrived=now) for n in range(3)
    ]
    scheduler.apply(TasksQueued(tuple(heavy)))
    assert next_ones(scheduler, 5, now) == "late0 h0 late1 h1 late2"


def test_a_critical_task_goes_before_one_that_waited_too_long() -> None:
    scheduler = busy(task("late", 1))
    now = NOW + OVERDUE_S + 1
    critical = task("critical", 9, job_type="b", priority=100, arrived=now)
    scheduler.apply(TasksQueued((critical,)))
    assert next_ones(scheduler, 2, now) == "critical late"


def test_a_task_ages_from_when_it_could_start() -> None:
    """A day of waiting for others is no day in line."""
    scheduler = busy(task("blocked", 1, needs=frozenset({"x"})))
    now = NOW + 86_400
    scheduler.apply(TasksQueued((task("plain", 2, job_type="b", arrived=now - 60),)))
    scheduler.plan(now)
    scheduler.apply(DependencyMet("x"))
    assert next_ones(scheduler, 2, now) == "plain blocked"


def test_a_later_start_is_no_time_in_line() -> None:
    scheduler = busy(task("later", 1, run_after=NOW + 86_400))
    now = NOW + 86_400
    scheduler.apply(TasksQueued((task("plain", 2, job_type="b", arrived=now - 60),)))
    assert next_ones(scheduler, 2, now) == "plain later"


def test_the_best_is_found_among_very_many_lines() -> None:
    scheduler = busy()
    tasks = [
        task(f"t{n}", n, model=f"m{n}", priority=20 if n else 0) for n in range(200)
    ]
    critical = task("critical", 999, model="mc", job_type="b", priority=100)
    scheduler.apply(TasksQueued((*tasks, critical)))
    assert next_ones(scheduler, 1, NOW) == "critical"
    now = NOW + OVERDUE_S * 30
    assert next_ones(scheduler, 1, now) == "t0", "it came first, and waited too long"


def test_who_has_the_model_but_not_the_type_is_not_waited_for() -> None:
    scheduler = Scheduler()
    scheduler.apply(ModelKnown("m", 100.0, 20.0))
    other = frozenset({"other"})
    scheduler.apply(WorkerReady("w0", "n", other, models=frozenset({"m"})))
    scheduler.apply(WorkerReady("w1", "n", frozenset({"a"})))
    scheduler.apply(TasksQueued((task("t", 1, model="m"),)))
    (order,) = scheduler.plan(NOW).orders
    assert order.worker_id == "w1"


def test_a_free_worker_is_asked_again_when_those_it_left_a_task_to_are_gone() -> None:
    scheduler = Scheduler(Policy(order_max_tasks=1))
    scheduler.apply(ModelKnown("m", 100.0, 60.0))
    types = frozenset({"a"})
    scheduler.apply(WorkerReady("w0", "n", types, models=frozenset({"m"})))
    scheduler.apply(WorkerReady("w1", "n", types))
    tasks = (task("t0", 1, model="m"), task("t1", 2))
    scheduler.apply(TasksRan("a", "w0", 1, 5.0, "m"))
    scheduler.apply(TasksQueued(tasks))
    assert len(scheduler.plan(NOW).orders) == 2
    scheduler.apply(TasksQueued((task("t2", 3, model="m"),)))
    assert scheduler.plan(NOW).orders == ()
    scheduler.apply(OrderClosed("w1"))
    left = scheduler.plan(NOW)
    assert left.orders == (), "w0 has the model and is free soon"
    assert left.next_wake is not None
    scheduler.apply(WorkerGone("w0"))
    (order,) = scheduler.plan(left.next_wake).orders
    assert (order.worker_id, order.tasks[0].task_id) == ("w1", "t2")
