"""The scheduler in virtual time: nothing lost, nothing done twice, no chance in it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.core.nodes.labels import Constraint
from corral.scheduler.events import WaitingTask
from corral.scheduler.plan import Plan, PlannedOrder
from corral.scheduler.scheduler import Policy, Scheduler
from corral.sim.machine import Machine, failing, parse_fleet
from corral.sim.measure import figures
from corral.sim.scenario import POLICIES
from corral.sim.simulation import Record, Simulation
from corral.sim.worker import BrokenPlan
from corral.sim.workload import Arrival, Model, Workload, synthetic, workload
from tests.property_examples import examples

FLEET = parse_fleet("3x24GB,1x48GB@1.5,1x20GB@0.6")


def simulate(
    work: Workload, fleet: list[Machine] = FLEET, policy: Policy | None = None
) -> Record:
    return Simulation(work, fleet, policy).run()


def arrival(number: int, at: float, run_s: float = 10.0, **more: object) -> Arrival:
    task = WaitingTask(f"t{number}", 1, "generate", number, arrived=at)
    return Arrival(replace(task, **more), run_s)  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", POLICIES)
def test_every_task_ends_once_under_every_policy(strategy: str) -> None:
    work = synthetic(1, tasks=400).faster(0.5)
    record = simulate(work, policy=Policy(strategy=strategy))
    assert record.ends.keys() == {a.task.task_id for a in work.arrivals}
    assert (record.left, record.doubled, record.redone) == (0, 0, 0)
    for each in work.arrivals:
        least_s = each.run_s / 1.5
        assert record.ended_s[each.task.task_id] >= least_s - 1e-6


@pytest.mark.parametrize("strategy", POLICIES)
def test_failures_lose_nothing_and_do_nothing_twice(strategy: str) -> None:
    work = synthetic(2, tasks=400)
    fleet = failing(FLEET, work.span_s, 60.0)
    record = simulate(work, fleet, Policy(strategy=strategy))
    assert (record.left, record.doubled) == (0, 0)
    assert record.redone > 0


@settings(max_examples=examples(25), deadline=None)
@given(
    seed=st.integers(0, 1000),
    fleet=st.sampled_from(["1x20GB", "2x24GB/2", "1x80GB@2/4,2x24GB@0.5"]),
    down_s=st.sampled_from([0.0, 5.0, 500.0]),
    strategy=st.sampled_from(POLICIES),
)
def test_no_task_is_lost_or_doubled_on_any_fleet(
    seed: int, fleet: str, down_s: float, strategy: str
) -> None:
    work = synthetic(seed, tasks=60, models=8)
    machines = parse_fleet(fleet)
    if down_s:
        machines = failing(machines, work.span_s, down_s)
    record = simulate(work, machines, Policy(strategy=strategy))
    assert (record.left, record.doubled) == (0, 0)


def test_the_same_run_gives_the_same_record() -> None:
    work = synthetic(3, tasks=300)
    assert simulate(work) == simulate(work)


def test_free_loads_beat_real_ones() -> None:
    work = synthetic(4, tasks=500)
    real, free = figures(simulate(work)), figures(simulate(work.without_loads()))
    assert free.mean_s < real.mean_s
    assert free.load_hours == 0.0 < real.load_hours


def test_more_workers_and_less_work_are_quicker() -> None:
    work = synthetic(5, tasks=500)
    now = figures(simulate(work)).mean_s
    assert figures(simulate(work, [*FLEET, *parse_fleet("2x24GB", "x")])).mean_s < now
    assert figures(simulate(work.faster(0.5))).mean_s < now


def test_a_model_is_loaded_once_and_then_there() -> None:
    work = workload(
        [arrival(n, 1.0, model="m") for n in (1, 2)], [Model("m", 1024.0, 5.0)]
    )
    record = simulate(work, parse_fleet("1x24GB"))
    assert record.loads == 1
    assert record.ended_s == pytest.approx({"t1": 15.0, "t2": 25.0})


def test_what_runs_beside_waits_for_the_same_load() -> None:
    work = workload(
        [arrival(1, 1.0, model="m"), arrival(2, 2.0, model="m")],
        [Model("m", 1024.0, 5.0)],
    )
    record = simulate(work, parse_fleet("1x24GB/2"))
    assert record.loads == 1
    assert record.ended_s == pytest.approx({"t1": 15.0, "t2": 14.0})


def test_a_task_that_no_worker_can_take_is_left() -> None:
    big = [Model("m", 30_000.0, 5.0)]
    work = workload([arrival(1, 1.0, model="m"), arrival(2, 1.0)], big)
    record = simulate(work, parse_fleet("1x24GB"))
    assert record.left == 1
    assert set(record.ended_s) == {"t2"}


def test_dependencies_deadlines_and_delays_are_kept() -> None:
    work = workload(
        [
            arrival(1, 1.0),
            arrival(2, 1.0, needs=frozenset(["t1"])),
            arrival(3, 1.0, run_after=101.0),
            arrival(4, 2.0, deadline=3.0),
        ]
    )
    record = simulate(work, parse_fleet("1x24GB"))
    assert record.ended_s == pytest.approx({"t1": 10.0, "t2": 20.0, "t3": 110.0})
    assert record.expired == {"t4"}


def test_a_task_that_needed_another_is_done_again_when_its_worker_dies() -> None:
    work = workload([arrival(1, 1.0), arrival(2, 1.0, needs=frozenset(["t1"]))])
    fleet = [Machine("a", outages=((15.0, 20.0),))]
    record = simulate(work, fleet)
    assert record.ended_s == pytest.approx({"t1": 10.0, "t2": 30.0})
    assert record.redone == 1


def test_tasks_go_where_labels_say() -> None:
    there = Constraint((("rack", "b"),))
    work = workload([arrival(n, float(n), constraint=there) for n in (1, 2)])
    fleet = [
        Machine("a", node_id="na", labels={"rack": "a"}),
        Machine("b", node_id="nb", labels={"rack": "b"}, outages=((0.0, 50.0),)),
    ]
    record = simulate(work, fleet)
    assert record.ended_s == pytest.approx({"t1": 60.0, "t2": 69.0})


def test_a_task_that_makes_room_for_a_critical_one_begins_again() -> None:
    work = workload(
        [
            arrival(1, 1.0, run_s=500.0, preemptible=True),
            arrival(2, 50.0, priority=100),
        ]
    )
    record = simulate(work, parse_fleet("1x24GB"), Policy(preempts=True))
    assert record.ended_s["t2"] == pytest.approx(10.0)
    assert record.ended_s["t1"] == pytest.approx(59.0 + 500.0)
    assert (record.redone, record.left, record.doubled) == (1, 0, 0)


class Overfilling(Scheduler):
    """Would hold two models where one fits."""

    def plan(self, now: float, *, can_send: bool = True) -> Plan:
        orders = super().plan(now, can_send=can_send).orders
        kept = [PlannedOrder(o.worker_id, o.tasks, o.load) for o in orders]
        return Plan(tuple(kept))


def test_a_plan_that_overfills_a_worker_is_found_out() -> None:
    models = [Model("a", 16_000.0, 1.0), Model("b", 16_000.0, 1.0)]
    work = workload([arrival(1, 1.0, model="a"), arrival(2, 50.0, model="b")], models)
    with pytest.raises(BrokenPlan, match="32000 MB in 24576 MB"):
        Simulation(work, parse_fleet("1x24GB"), scheduler=Overfilling()).run()
