"""Whatever comes, and whenever: who goes before whom, and that nobody starves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.scheduler.scheduler import Policy
from corral.scheduler.world.late_tasks import overdue_s
from tests.property_examples import examples
from tests.unit.scheduler.virtual import Job, Virtual

TYPES = ["a", "b", "c"]
priorities = st.sampled_from([-10, 0, 0, 0, 5, 10, 100])
owners = st.sampled_from(["ann", "bob", "cy"])
fleets = st.lists(st.frozensets(st.sampled_from(TYPES), min_size=1), max_size=3).map(
    # One worker serves all, so that every task is feasible.
    lambda some: {f"w{n}": types for n, types in enumerate([frozenset(TYPES), *some])}
)
jobs = st.builds(
    Job,
    at=st.integers(0, 60).map(float),
    job_type=st.sampled_from(TYPES),
    run_s=st.sampled_from([3.0, 20.0, 90.0]),
    priority=priorities,
    owner=owners,
    group=st.sampled_from([None, None, "g"]),
    group_limit=st.just(2),
    deadline_s=st.sampled_from([None, None, None, 60.0, 300.0]),
)
many = st.lists(jobs, min_size=12, max_size=60)
quick = settings(max_examples=examples(40), deadline=None)


@quick
@given(fleets, many)
def test_all_that_comes_starts_or_is_past_its_deadline(
    fleet: dict[str, frozenset[str]], coming: list[Job]
) -> None:
    cluster = Virtual(fleet)
    cluster.run(coming)
    late = set(cluster.expired)
    assert set(cluster.started) | late == set(cluster.jobs)
    assert all(cluster.jobs[t].deadline_s is not None for t in late)


@quick
@given(fleets, many, st.integers(1, 3), st.booleans())
def test_quotas_are_never_exceeded_and_all_still_ends(
    fleet: dict[str, frozenset[str]], coming: list[Job], most: int, is_fair: bool
) -> None:
    cluster = Virtual(fleet)
    cluster.share("owner=ann", max_running=most)
    if is_fair:
        cluster.share("owner=bob", weight=2.0)
    cluster.run(coming)
    assert len(cluster.started) + len(cluster.expired) == len(coming)


@quick
@given(fleets, many, st.sampled_from([0.0, 50.0, 200.0]))
def test_nothing_starts_once_the_gpu_seconds_of_the_day_are_used(
    fleet: dict[str, frozenset[str]], coming: list[Job], quota_s: float
) -> None:
    cluster = Virtual(fleet)
    cluster.share("owner=ann", gpu_seconds_per_day=quota_s)
    cluster.run(coming)
    waits = [cluster.jobs[t].owner for t in cluster.waiting]
    assert set(waits) <= {"ann"}, "others are not held up"


@quick
@given(many, st.sampled_from(["least_loaded", "weighted_round_robin", "affinity"]))
def test_quotas_hold_with_every_strategy(coming: list[Job], strategy: str) -> None:
    fleet = {f"w{n}": frozenset(TYPES) for n in range(3)}
    cluster = Virtual(fleet, Policy(order_max_tasks=1, strategy=strategy))
    cluster.share("owner=ann", max_running=1)
    # A bound task waits at its worker: critical ones come behind those bound before.
    plain = [job for job in coming if job.priority < 100]
    cluster.run(plain)
    assert len(cluster.started) + len(cluster.expired) == len(plain)


@quick
@given(fleets, many, st.sampled_from([1.0, 300.0]), st.booleans())
def test_a_higher_priority_of_its_type_is_passed_once_at_most(
    fleet: dict[str, frozenset[str]], coming: list[Job], run_s: float, is_fair: bool
) -> None:
    # Without groups, which hold tasks back; long ones make others overdue.
    plain = [replace(j, group=None, job_type="a", run_s=run_s) for j in coming]
    more = [replace(j, at=1000.0 + 20 * n, priority=10) for n, j in enumerate(plain)]
    cluster = Virtual(fleet)
    if is_fair:
        cluster.share("owner=ann", weight=2.0)
    cluster.run([*plain, *more])
    assert max(cluster.passed.values(), default=0) <= 1


@quick
@given(
    st.sampled_from([5, 10, 20, 99]),
    st.sampled_from(["a", "b"]),
    st.sampled_from([0, -10]),
    st.sampled_from([2.0, 15.0, 60.0]),
    st.integers(1, 3),
)
def test_a_normal_task_starts_in_time_though_heavier_ones_come_without_end(
    heavy: int, job_type: str, light: int, run_s: float, workers: int
) -> None:
    fleet = {f"w{n}": frozenset(["a", "b"]) for n in range(workers)}
    bound_s = overdue_s(run_s) + 3 * run_s
    # More than the workers can do: their line grows and grows.
    count = int(2 * bound_s / run_s * workers)
    flood = [Job(n * run_s / (1.3 * workers), "b", run_s, heavy) for n in range(count)]
    cluster = Virtual(fleet)
    cluster.run([*flood, Job(1.0, job_type, run_s, light)], until=bound_s + 10)
    (one,) = [t for t, job in cluster.jobs.items() if job.priority == light]
    assert cluster.waits()[one] <= bound_s


@pytest.mark.spec("C23")
@quick
@given(fleets, many)
def test_a_critical_task_waits_for_nothing_but_what_runs(
    fleet: dict[str, frozenset[str]], coming: list[Job]
) -> None:
    cluster = Virtual(fleet)
    flood = [Job(float(n), t, 5.0, 20) for n in range(0, 300, 2) for t in TYPES]
    cluster.run([*coming, *flood], until=400.0)
    # That no lesser one ever started beside it is checked at every plan.
    assert cluster.started
