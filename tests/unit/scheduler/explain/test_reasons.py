"""Every reason a task may wait for, in words and in figures."""

from __future__ import annotations

from corral.scheduler.events import (
    Paused,
    TasksQueued,
    WaitingTask,
    WorkerBroken,
    WorkerGone,
    WorkerReady,
)
from corral.scheduler.plan import Reason
from corral.scheduler.scheduler import Scheduler

NOW = 1000.0
A = frozenset({"a"})


def why(scheduler: Scheduler, task_id: str = "t") -> Reason:
    reason = scheduler.why(task_id, NOW)
    assert reason is not None
    return reason


def waiting(**more: object) -> Scheduler:
    scheduler = Scheduler()
    scheduler.apply(TasksQueued((WaitingTask("t", 1, "a", 1, **more),)))  # type: ignore[arg-type]
    return scheduler


def test_no_worker_serves_its_type() -> None:
    reason = why(waiting())
    assert reason.reason == "no_worker"
    assert "no worker serves 'a'" in reason.message
    assert "corral worker launch" in reason.message
    assert reason.details == {"job_type": "a"}


def test_its_worker_cannot_start() -> None:
    scheduler = waiting()
    scheduler.apply(WorkerBroken("w1", A, "No module named 'mine'"))
    reason = why(scheduler)
    assert reason.reason == "worker_error"
    assert "No module named 'mine'" in reason.message
    assert reason.details == {"w1": "No module named 'mine'"}


def test_its_workers_are_held_by_a_breaker_unless_one_is_being_tried() -> None:
    scheduler = waiting()
    scheduler.apply(WorkerBroken("w1", A, "breaker open: x", "breaker_open"))
    reason = why(scheduler)
    assert reason.reason == "breaker_open"
    assert "breaker open: x" in reason.message
    scheduler.apply(WorkerBroken("w2", A, "no module"))
    assert why(scheduler).reason == "worker_error"


def test_a_broken_worker_that_is_gone_is_no_reason_any_more() -> None:
    scheduler = waiting()
    scheduler.apply(WorkerBroken("w1", A, "broken"))
    scheduler.apply(WorkerGone("w1"))
    assert why(scheduler).reason == "no_worker"


def test_workers_are_busy_and_others_stand_before_it() -> None:
    scheduler = Scheduler()
    scheduler.apply(WorkerReady("w1", "n1", A))
    tasks = [WaitingTask(f"t{n}", 1, "a", n) for n in range(3)]
    scheduler.apply(TasksQueued((*tasks, WaitingTask("t", 1, "a", 9))))
    scheduler.plan(NOW)
    reason = why(scheduler)
    assert reason.reason == "workers_busy"
    assert reason.details == {"workers": ["w1"], "ahead": 2}
    assert "2 task(s) stand before this one" in reason.message


def test_it_waits_for_other_tasks() -> None:
    reason = why(waiting(needs=frozenset({"y", "x"})))
    assert reason.reason == "dependencies"
    assert reason.details == {"depends_on": ["x", "y"]}


def test_its_time_has_not_come() -> None:
    reason = why(waiting(run_after=NOW + 2.5))
    assert reason.reason == "not_before"
    assert reason.details == {"starts_in_s": 2.5}


def test_its_time_has_come_but_no_plan_was_made_since() -> None:
    scheduler = waiting(run_after=NOW - 1)
    scheduler.apply(WorkerReady("w1", "n1", A))
    assert why(scheduler).details == {"workers": ["w1"], "ahead": 0}


def test_the_cluster_is_draining() -> None:
    scheduler = waiting()
    scheduler.apply(WorkerReady("w1", "n1", A))
    scheduler.apply(Paused(True))
    assert scheduler.plan(NOW).orders == ()
    assert why(scheduler).reason == "draining"
    scheduler.apply(Paused(False))
    assert len(scheduler.plan(NOW).orders) == 1


def test_a_task_that_does_not_wait_here_has_no_reason() -> None:
    assert Scheduler().why("t", NOW) is None
    scheduler = waiting()
    scheduler.apply(WorkerReady("w1", "n1", A))
    scheduler.plan(NOW)
    assert scheduler.why("t", NOW) is None
