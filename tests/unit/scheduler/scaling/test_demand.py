"""What waits for workers, as autoscaling is told of it."""

from __future__ import annotations

from typing import Any

import pytest

from corral.core.access.share import Share
from corral.core.nodes.labels import ANYWHERE, Constraint
from corral.scheduler.events import (
    ModelKnown,
    NodeHeld,
    Paused,
    ShareSet,
    TasksQueued,
    TasksRan,
    TypePaused,
    WaitingTask,
    WorkerReady,
)
from corral.scheduler.scaling.demand import Demand
from corral.scheduler.scheduler import Scheduler

NOW = 1000.0


def queue(scheduler: Scheduler, count: int, job_type: str = "a", **more: Any) -> None:
    first = scheduler.waiting_count() + 1
    tasks = tuple(
        WaitingTask(
            f"{job_type}{first + n}", 1, job_type, first + n, arrived=NOW, **more
        )
        for n in range(count)
    )
    scheduler.apply(TasksQueued(tasks))


def ready(scheduler: Scheduler, name: str, *types: str, **more: Any) -> None:
    scheduler.apply(WorkerReady(name, "n1", frozenset(types), **more))


def knows(scheduler: Scheduler, job_type: str, each_s: float) -> None:
    scheduler.apply(TasksRan(job_type, "", 1, each_s))


def test_what_nobody_serves_has_no_speed() -> None:
    scheduler = Scheduler()
    queue(scheduler, 3)
    assert scheduler.demands(NOW + 7) == (Demand("a", 3, 7.0),)


def test_work_is_seconds_and_the_first_worker_is_free_when_it_is_done() -> None:
    scheduler = Scheduler()
    knows(scheduler, "a", 4.0)
    ready(scheduler, "w1", "a")
    ready(scheduler, "w2", "a")
    queue(scheduler, 7)
    scheduler.plan(NOW)
    (found,) = scheduler.demands(NOW + 1)
    assert (found.tasks, found.speed) == (5, 2.0)
    assert found.work_s == pytest.approx(20.0)
    assert found.soonest_s == pytest.approx(3.0)


def test_a_model_nobody_has_is_loaded_first() -> None:
    scheduler = Scheduler()
    scheduler.apply(TasksRan("a", "", 1, 2.0, "m"))
    scheduler.apply(ModelKnown("m", 100.0, 30.0))
    queue(scheduler, 1, model="m")
    (found,) = scheduler.demands(NOW)
    assert found.work_s == pytest.approx(32.0)
    # What does not fit is served by none of them.
    ready(scheduler, "w1", "a", memory_mb=50.0)
    (found,) = scheduler.demands(NOW)
    assert found.speed == 0.0


def test_workers_that_serve_others_too_have_their_work_before_them() -> None:
    scheduler = Scheduler()
    for name in "ab":
        knows(scheduler, name, 4.0)
    ready(scheduler, "w1", "a", "b", open_orders=1)
    ready(scheduler, "w2", "b", open_orders=1)
    queue(scheduler, 2, "a")
    queue(scheduler, 6, "b")
    one, other = scheduler.demands(NOW)
    assert (one.job_type, other.job_type) == ("a", "b")
    # Half of what waits for b is the other worker's.
    assert one.work_s == pytest.approx(2 * 4.0 + 3 * 4.0)
    assert other.work_s == pytest.approx(2 * 4.0 + 6 * 4.0)


def test_tasks_for_other_nodes_are_told_apart() -> None:
    scheduler = Scheduler()
    fast = Constraint((("disk", "ssd"),))
    queue(scheduler, 1)
    queue(scheduler, 2, constraint=fast)
    assert {(d.constraint, d.tasks) for d in scheduler.demands(NOW)} == {
        (ANYWHERE, 1),
        (fast, 2),
    }


def test_what_another_worker_would_not_start_is_no_demand() -> None:
    scheduler = Scheduler()
    queue(scheduler, 1, run_after=NOW + 60)
    queue(scheduler, 1, needs=frozenset({"other"}))
    queue(scheduler, 1, worker_id="w9")
    scheduler.apply(TypePaused("paused", True))
    queue(scheduler, 1, "paused")
    assert scheduler.demands(NOW) == ()
    assert scheduler.kept() == frozenset({"w9"})
    queue(scheduler, 1)
    assert len(scheduler.demands(NOW)) == 1
    scheduler.apply(Paused(True))
    assert scheduler.demands(NOW) == ()


def test_a_quota_that_is_used_up_is_no_demand() -> None:
    scheduler = Scheduler()
    scheduler.apply(ShareSet(Share("owner=ann", max_running=1)))
    ready(scheduler, "w1", "a")
    queue(scheduler, 2, owner="ann")
    assert len(scheduler.plan(NOW).orders) == 1
    assert scheduler.demands(NOW) == ()


def test_workers_of_held_nodes_do_nothing() -> None:
    scheduler = Scheduler()
    ready(scheduler, "w1", "a", open_orders=1)
    queue(scheduler, 1)
    scheduler.apply(NodeHeld("n1", "cordoned"))
    (found,) = scheduler.demands(NOW)
    assert found.speed == 0.0
