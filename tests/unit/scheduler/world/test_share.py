"""Shares of the cluster: what each gets beside others, and what it may not pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from corral.core.access.share import Share
from corral.scheduler.events import (
    AttemptEnded,
    OrderClosed,
    ShareGone,
    ShareSet,
    ShareUsed,
    TasksGone,
    TasksQueued,
    TasksRan,
    TasksTaken,
    WaitingTask,
    WorkerReady,
)
from corral.scheduler.scheduler import Policy, Scheduler
from tests.unit.scheduler.virtual import START, Job, Virtual

NOW = 20_000 * 86_400.0 + 3600.0
DAY = 20_000
A = frozenset({"a"})


def task(name: str, seq: int = 1, **more: object) -> WaitingTask:
    made = WaitingTask(name, 1, "a", seq, arrived=NOW)
    return replace(made, **more)  # type: ignore[arg-type]


def serving(*shares: Share, workers: int = 4, gpus: float = 1.0) -> Scheduler:
    scheduler = Scheduler(Policy(order_max_tasks=1))
    for n in range(workers):
        scheduler.apply(WorkerReady(f"w{n}", "n", A, gpus=gpus))
    for share in shares:
        scheduler.apply(ShareSet(share))
    scheduler.apply(TasksRan("a", "w0", 1, 10.0))
    return scheduler


def ids(scheduler: Scheduler, now: float = NOW) -> list[str]:
    return [t.task_id for o in scheduler.plan(now).orders for t in o.tasks]


def reason(scheduler: Scheduler, task_id: str) -> tuple[str, str]:
    found = scheduler.why(task_id, NOW)
    assert found is not None
    return found.reason, found.message


# by weight -------------------------------------------------------------------
def work(owner: str, count: int, at: float = 0.0, run_s: float = 10.0) -> list[Job]:
    return [Job(at, "a", run_s, owner=owner) for _ in range(count)]


def done(cluster: Virtual, until: float) -> Counter[str]:
    """Seconds of work each has begun to get by then."""
    seconds: Counter[str] = Counter()
    for task_id, at in cluster.started.items():
        if at - START < until:
            job = cluster.jobs[task_id]
            seconds[job.owner] += round(job.run_s)
    return seconds


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_owners_get_work_in_proportion_to_their_weights(weight: float) -> None:
    cluster = Virtual({"w0": A, "w1": A})
    cluster.share("owner=ann", weight=weight)
    cluster.run([*work("ann", 400), *work("bob", 400)], until=1000)
    got = done(cluster, 1000)
    assert got["ann"] / got["bob"] == pytest.approx(weight, rel=0.05)


def test_it_is_seconds_that_count_and_not_tasks() -> None:
    cluster = Virtual({"w0": A | {"b"}, "w1": A | {"b"}})
    cluster.share("owner=ann", weight=1.0)
    long = [replace(job, job_type="b") for job in work("bob", 100, run_s=60.0)]
    cluster.run([*work("ann", 900), *long], until=3000)
    got = done(cluster, 3000)
    assert got["ann"] == pytest.approx(got["bob"], rel=0.1)


def test_a_burst_of_one_does_not_hold_up_another() -> None:
    cluster = Virtual({"w0": A, "w1": A})
    cluster.share("owner=ann", weight=1.0)
    cluster.run([*work("ann", 500), *work("bob", 10, at=1000.0)], until=1300)
    waits = cluster.waits()
    bob = [waits[t] for t in waits if cluster.jobs[t].owner == "bob"]
    assert len(bob) == 10
    assert max(bob) <= 120.0, "they share the workers evenly from the start"


def test_who_comes_back_after_a_pause_has_saved_up_nothing() -> None:
    cluster = Virtual({"w0": A})
    cluster.share("owner=ann", weight=1.0)
    late = work("bob", 100, at=2000.0)
    cluster.run([*work("bob", 1), *work("ann", 400), *late], until=2600)
    got = done(cluster, 2600)
    assert got["bob"] == pytest.approx(300, abs=40)


def test_alone_an_owner_has_all_there_is() -> None:
    cluster = Virtual({"w0": A, "w1": A})
    cluster.share("owner=ann", weight=0.1)
    cluster.run(work("ann", 20), until=95)
    assert len(cluster.started) == 20


def test_priority_still_comes_first_within_a_type() -> None:
    scheduler = serving(Share("owner=ann", weight=1.0), workers=1)
    scheduler.apply(TasksQueued((task("t0", 1, owner="ann"),)))
    assert ids(scheduler) == ["t0"]
    urgent = task("urgent", 3, owner="ann", priority=1)
    scheduler.apply(TasksQueued((task("bob", 2, owner="bob"), urgent)))
    scheduler.apply(AttemptEnded("t0", 10.0))
    scheduler.apply(OrderClosed("w0"))
    assert ids(scheduler) == ["urgent"]


def test_labels_are_shared_by_and_who_has_none_is_one_of_them() -> None:
    scheduler = serving(Share("team=vision", weight=1.0), workers=1)
    tasks = [task(f"v{n}", n, labels={"team": "vision"}) for n in range(3)]
    plain = [task(f"p{n}", 10 + n) for n in range(3)]
    scheduler.apply(TasksQueued((*tasks, *plain)))
    taken = []
    for _ in range(6):
        (one,) = ids(scheduler)
        taken.append(one)
        scheduler.apply(AttemptEnded(one, 10.0))
        scheduler.apply(OrderClosed("w0"))
    assert sorted(taken[:4]) == ["p0", "p1", "v0", "v1"]


# quotas ----------------------------------------------------------------------
def test_no_more_run_at_once_than_the_quota_lets() -> None:
    scheduler = serving(Share("owner=ann", max_running=2))
    tasks = [task(f"t{n}", n, owner="ann") for n in range(3)]
    scheduler.apply(TasksQueued((*tasks, task("bob", 9, owner="bob"))))
    assert ids(scheduler) == ["t0", "t1", "bob"]
    word, message = reason(scheduler, "t2")
    assert word == "quota"
    assert "owner=ann runs 2 of at most 2" in message
    scheduler.apply(AttemptEnded("t0", 10.0))
    assert ids(scheduler) == ["t2"]


@pytest.mark.parametrize("how", ["queued", "gone"])
def test_what_comes_back_or_is_cancelled_makes_room(how: str) -> None:
    scheduler = serving(Share("owner=ann", max_running=1))
    first = task("t0", 1, owner="ann")
    scheduler.apply(TasksQueued((first, task("t1", 2, owner="ann"))))
    assert ids(scheduler) == ["t0"]
    if how == "queued":
        scheduler.apply(TasksQueued((replace(first, attempt=2),)))
        assert ids(scheduler) == ["t0"]
    else:
        scheduler.apply(TasksGone(("t0",)))
        assert ids(scheduler) == ["t1"]


def test_each_value_has_a_quota_of_its_own_unless_it_is_named() -> None:
    scheduler = serving(
        Share("owner=*", max_running=1), Share("owner=boss", max_running=2)
    )
    names = ["ann", "ann", "bob", "boss", "boss"]
    tasks = [task(f"{who}{n}", n, owner=who) for n, who in enumerate(names)]
    scheduler.apply(TasksQueued(tuple(tasks)))
    assert ids(scheduler) == ["ann0", "bob2", "boss3", "boss4"]


def test_a_quota_set_later_counts_what_runs_and_one_removed_lets_go() -> None:
    scheduler = serving()
    tasks = [task(f"t{n}", n, owner="ann") for n in range(2)]
    scheduler.apply(TasksQueued(tuple(tasks)))
    assert ids(scheduler) == ["t0", "t1"]
    scheduler.apply(TasksQueued((task("t2", 3, owner="ann"),)))
    scheduler.apply(ShareSet(Share("owner=ann", max_running=2)))
    scheduler.apply(TasksTaken("w0", tuple(tasks)))
    assert ids(scheduler) == []
    assert reason(scheduler, "t2")[0] == "quota"
    scheduler.apply(ShareGone("owner=ann"))
    assert ids(scheduler) == ["t2"]


def test_gpu_seconds_of_a_day_are_counted_and_begin_anew_at_midnight() -> None:
    share = Share("team=x", gpu_seconds_per_day=50.0)
    scheduler = serving(share, workers=1, gpus=2.0)
    tasks = [task(f"t{n}", n, labels={"team": "x"}) for n in range(5)]
    scheduler.apply(TasksQueued(tuple(tasks)))
    for n in range(2):
        assert ids(scheduler) == [f"t{n}"]
        scheduler.apply(AttemptEnded(f"t{n}", 15.0))
        scheduler.apply(OrderClosed("w0"))
    plan = scheduler.plan(NOW)
    assert plan.orders == ()
    assert plan.next_wake == (DAY + 1) * 86_400.0
    word, message = reason(scheduler, "t2")
    assert word == "quota"
    assert "50 GPU-seconds" in message
    assert "23.0 h" in message
    assert ids(scheduler, (DAY + 1) * 86_400.0) == ["t2"]


def test_what_was_used_before_a_restart_counts_if_it_was_today() -> None:
    share = Share("team=x", gpu_seconds_per_day=50.0)
    for day, expected in ((DAY, []), (DAY - 1, ["t"])):
        scheduler = serving(share)
        scheduler.apply(ShareUsed("team=x", day, 50.0))
        scheduler.apply(TasksQueued((task("t", labels={"team": "x"}),)))
        assert ids(scheduler) == expected


def test_of_a_group_only_so_many_run_at_once_whatever_their_types() -> None:
    scheduler = serving()
    tasks = [task(f"t{n}", n, owner="ann", group="g", group_limit=2) for n in range(4)]
    other = task("other", 9, owner="bob", group="g", group_limit=1)
    scheduler.apply(TasksQueued((*tasks, other)))
    assert ids(scheduler) == ["t0", "t1", "other"]
    assert "group ann/g runs 2 of at most 2" in reason(scheduler, "t3")[1]
    scheduler.apply(AttemptEnded("t1"))
    assert ids(scheduler) == ["t2"]
    for name in ("t0", "t2", "t3", "other"):
        scheduler.apply(TasksGone((name,)))
    assert scheduler.buckets() == [], "a group is forgotten with its last task"


def test_tiny_tasks_are_not_given_in_orders_larger_than_the_quota() -> None:
    scheduler = Scheduler()
    scheduler.apply(WorkerReady("w0", "n", A))
    scheduler.apply(TasksRan("a", "w0", 100, 0.001))
    tasks = [task(f"t{n}", n, group="g", group_limit=3) for n in range(50)]
    scheduler.apply(TasksQueued(tuple(tasks)))
    assert len(ids(scheduler)) == 3


def test_without_shares_nothing_is_kept_of_tasks_that_run() -> None:
    scheduler = serving()
    scheduler.apply(TasksQueued((task("t", owner="ann", labels={"team": "x"}),)))
    assert ids(scheduler) == ["t"]
    assert not scheduler.counts("t")
    assert scheduler.buckets() == []
