"""Autoscaling's decisions: when to add workers, where, and when to let some go."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from corral.core.nodes.labels import Constraint
from corral.scheduler.scaling.demand import Demand
from corral.scheduler.scaling.scaler import Scaler
from corral.scheduler.scaling.values import (
    LaunchDecision,
    NodeRoom,
    ScaledType,
    ScaledWorker,
    ScaledWorkerState,
    ScalingDecision,
    ScalingInput,
    ScalingPolicy,
)

POLICY = ScalingPolicy(wait_s=10, idle_s=60, cooldown_s=5, most=10)
KIND = ScaledType("t", frozenset({"a"}), 0, 4)
NODE = NodeRoom("n1", seats=8)
FAST = Constraint((("disk", "ssd"),))


def scene(now: float = 0.0, **more: Any) -> ScalingInput:
    found: dict[str, Any] = {
        "types": (KIND,),
        "workers": (),
        "nodes": (NODE,),
        "demands": (),
        **more,
    }
    found.setdefault("total", len(found["workers"]))
    return ScalingInput(now, **found)


def worker(number: int, **more: Any) -> ScaledWorker:
    return ScaledWorker(f"w{number}", "t", "n1", **more)


def workers(count: int, **more: Any) -> tuple[ScaledWorker, ...]:
    return tuple(worker(number, **more) for number in range(count))


def waiting(tasks: int = 1, **more: Any) -> tuple[Demand, ...]:
    return (Demand("a", tasks, **more),)


def blocked(decision: ScalingDecision) -> str:
    (now,) = decision.types
    return now.blocked


def test_what_nobody_serves_gets_a_worker_at_once() -> None:
    decision = Scaler(POLICY).decide(scene(demands=waiting(3)))
    (launch,) = decision.launches
    assert launch == LaunchDecision(
        "t", "n1", "3 task(s) of 'a' wait and no worker serves them"
    )
    # With the one on its way somebody will.
    assert decision.types[0].wait_s == 0.0
    later = scene(
        1, demands=waiting(3), workers=workers(1, standing=ScaledWorkerState.STARTING)
    )
    assert Scaler(POLICY).decide(later).launches == ()


def test_so_many_are_added_that_the_predicted_wait_is_short_enough() -> None:
    demand = waiting(50, work_s=35.0, speed=1.0)
    scaler = Scaler(POLICY)
    decision = scaler.decide(scene(workers=workers(1, is_busy=True), demands=demand))
    # 35 s of work is done in 10 s by 4 workers.
    assert len(decision.launches) == 3
    assert decision.launches[0].reason == (
        "50 task(s) of 'a' wait, predicted to wait 35.0 s, over 10 s"
    )
    calm = scene(workers=workers(1), demands=waiting(50, work_s=9.0, speed=1.0))
    assert Scaler(POLICY).decide(calm).launches == ()


def test_there_are_never_more_workers_than_tasks_for_them() -> None:
    demand = waiting(2, work_s=1000.0, speed=1.0)
    busy = workers(1, is_busy=True)
    assert len(Scaler(POLICY).decide(scene(workers=busy, demands=demand)).launches) == 2
    up = (*busy, *(worker(n, standing=ScaledWorkerState.STARTING) for n in (7, 8)))
    assert not Scaler(POLICY).decide(scene(workers=up, demands=demand)).launches


def test_of_a_type_nobody_knows_the_oldest_task_tells_how_long_it_takes() -> None:
    scaler, busy = Scaler(POLICY), workers(1, is_busy=True)
    young = waiting(9, speed=1.0, waited_s=9.0)
    assert not scaler.decide(scene(0, workers=busy, demands=young)).launches
    old = waiting(9, speed=1.0, waited_s=12.0)
    (launch,) = scaler.decide(scene(3, workers=busy, demands=old)).launches
    assert "the oldest for 12.0 s" in launch.reason
    two = workers(2, is_busy=True)
    older = waiting(9, speed=2.0, waited_s=13.0)
    assert not scaler.decide(scene(4, workers=two, demands=older)).launches
    assert scaler.decide(scene(8, workers=two, demands=older)).launches


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"types": (replace(KIND, most=0),)}, "its maximum of 0"),
        ({"total": 10}, "the cluster has its maximum of 10"),
        ({"nodes": ()}, "no open node has room"),
        ({"nodes": (replace(NODE, is_open=False),)}, "no open node has room"),
        ({"nodes": (replace(NODE, seats=0),)}, "no open node has room"),
        ({"nodes": (NODE.limited(0),)}, "no open node has room"),
        ({"nodes": (replace(NODE, taints=frozenset({"x"})),)}, "no open node has room"),
        ({"types": (replace(KIND, gpus=1),)}, "no open node has 1 free GPU(s)"),
        (
            {"demands": waiting(constraint=FAST)},
            "no open node with disk=ssd has room",
        ),
    ],
)
def test_without_room_it_says_what_is_missing(change: Any, words: str) -> None:
    decision = Scaler(POLICY).decide(scene(**{"demands": waiting(), **change}))
    assert decision.launches == ()
    assert words in blocked(decision)
    assert math.isinf(decision.types[0].wait_s)


def test_a_worker_starts_where_its_tasks_may_go_and_its_cards_are() -> None:
    nodes = (
        NodeRoom("n1", seats=9, cards=0),
        NodeRoom("n2", seats=0, cards=2, workers=5),
        NodeRoom("n3", seats=9, cards=2, labels={"disk": "ssd"}, workers=7),
        NodeRoom("n4", seats=9, cards=9, taints=frozenset({"spot"})),
    )

    def chosen(gpus: int, constraint: Constraint) -> list[str]:
        kind = replace(KIND, gpus=gpus)
        demand = waiting(9, work_s=1000.0, constraint=constraint)
        found = scene(types=(kind,), nodes=nodes, demands=demand)
        return [launch.node_id for launch in Scaler(POLICY).decide(found).launches]

    plain = Constraint()
    assert chosen(0, plain) == ["n1", "n1", "n1", "n1"]
    assert chosen(1, plain) == ["n2", "n2", "n3", "n3"]
    assert chosen(2, plain) == ["n2", "n3"]
    assert chosen(0, FAST) == ["n3"] * 4
    assert chosen(2, Constraint(tolerates=frozenset({"spot"}))) == [
        "n2",
        "n3",
        "n4",
        "n4",
    ]


def test_it_keeps_the_least_and_never_goes_above_the_most() -> None:
    kind = replace(KIND, least=2, most=3)
    decision = Scaler(POLICY).decide(scene(types=(kind,)))
    assert [launch.reason for launch in decision.launches] == [
        "0 of at least 2 worker(s) were there"
    ] * 2
    demand = waiting(90, work_s=9000.0, speed=3.0)
    full = scene(types=(kind,), workers=workers(3, is_busy=True), demands=demand)
    decision = Scaler(POLICY).decide(full)
    assert decision.launches == ()
    assert blocked(decision) == "it has its maximum of 3 worker(s)"


def test_idle_workers_go_after_a_while_those_with_models_last() -> None:
    scaler = Scaler(POLICY)
    there = (worker(1, models=2), worker(2, is_kept=True), worker(3), worker(4))
    assert scaler.decide(scene(0, workers=there)).retires == ()
    assert scaler.decide(scene(59, workers=there)).retires == ()
    gone = scaler.decide(scene(60, workers=there)).retires
    assert [retire.worker_id for retire in gone] == ["w3", "w4", "w1"]
    assert gone[0].reason == "for 60 s at most 0 of 4 worker(s) were needed"


def test_as_many_stay_as_were_ever_needed_at_once() -> None:
    scaler = Scaler(POLICY)
    gone: list[list[str]] = []
    for now in range(0, 70, 10):
        busy = 2 if now == 40 else 0
        there = tuple(worker(n, is_busy=n < busy) for n in range(4))
        retires = scaler.decide(scene(now, workers=there)).retires
        gone.append([retire.worker_id for retire in retires])
    assert gone == [[], [], [], [], [], [], ["w0", "w1"]]


def test_a_task_that_came_and_ended_between_two_looks_was_needed_too() -> None:
    scaler = Scaler(POLICY)
    for now in range(0, 600, 30):
        there = (worker(1, ran=now // 30),)
        assert scaler.decide(scene(now, workers=there)).retires == ()
    still = (worker(1, ran=19),)
    assert scaler.decide(scene(620, workers=still)).retires == ()
    assert len(scaler.decide(scene(640, workers=still)).retires) == 1


def test_no_worker_goes_while_something_waits_that_it_could_take() -> None:
    scaler = Scaler(POLICY)
    for now in range(0, 1000, 10):
        # It waits for a model that fits nowhere: more workers would not help.
        found = scene(now, workers=workers(1), demands=waiting(1))
        decision = scaler.decide(found)
        assert (decision.launches, decision.retires) == ((), ())
        assert "more would not help" in blocked(decision)


def test_only_over_the_most_a_busy_worker_is_asked_to_finish() -> None:
    kind = replace(KIND, most=2)
    there = (worker(1, is_busy=True), worker(2, is_busy=True), worker(3), worker(4))
    gone = Scaler(POLICY).decide(scene(types=(kind,), workers=there)).retires
    assert [retire.worker_id for retire in gone] == ["w3", "w4"]
    kind = replace(KIND, most=1)
    gone = Scaler(POLICY).decide(scene(types=(kind,), workers=there)).retires
    assert [retire.worker_id for retire in gone] == ["w3", "w4", "w1"]


def test_one_that_leaves_counts_until_it_is_gone() -> None:
    kind = replace(KIND, most=1)
    there = (worker(1, standing=ScaledWorkerState.LEAVING, is_busy=True),)
    found = scene(types=(kind,), workers=there, demands=waiting())
    decision = Scaler(POLICY).decide(found)
    assert (decision.launches, decision.retires) == ((), ())
    assert blocked(decision) == "it has its maximum of 1 worker(s)"


def test_a_failed_launch_is_tried_again_later_and_elsewhere() -> None:
    scaler = Scaler(POLICY)
    nodes = (NODE, replace(NODE, node_id="n2", workers=5))

    def launches(now: float, *there: ScaledWorker) -> list[str]:
        found = scene(now, nodes=nodes, workers=there, demands=waiting(9))
        return [launch.node_id for launch in scaler.decide(found).launches]

    broken = worker(1, standing=ScaledWorkerState.BROKEN, error="no such module")
    assert launches(0) == ["n1"]
    assert launches(1, broken) == []
    assert launches(5, broken) == []
    assert launches(6, broken) == ["n2"]
    other = replace(broken, worker_id="w2", node_id="n2")
    assert launches(7, broken, other) == []
    assert launches(16, broken, other) == []
    found = scene(16, nodes=nodes, workers=(broken, other), demands=waiting(9))
    told = blocked(scaler.decide(found))
    assert told == "a launch failed, the next in 1 s: no such module"
    assert launches(17, broken, other) == ["n1"]
    late = scene(700, nodes=nodes, workers=(broken, other))
    gone = scaler.decide(late).retires
    assert {retire.reason for retire in gone} == {"it cannot start: no such module"}


def test_a_launch_that_could_not_be_asked_for_backs_off_as_well() -> None:
    scaler = Scaler(POLICY)
    (launch,) = scaler.decide(scene(0, demands=waiting())).launches
    scaler.failed(launch, 0.0, "node n1 is held")
    assert scaler.decide(scene(4, demands=waiting())).launches == ()
    assert scaler.decide(scene(5, demands=waiting())).launches == (launch,)


def test_workers_of_held_or_lost_nodes_count_for_nothing() -> None:
    there = workers(4, standing=ScaledWorkerState.OUT)
    found = scene(workers=there, demands=waiting(), total=0)
    decision = Scaler(POLICY).decide(found)
    assert len(decision.launches) == 1
    assert decision.types[0].workers == 1


def test_a_short_task_behind_a_long_one_gets_a_worker_too() -> None:
    demand = waiting(1, work_s=1.0, speed=1.0, soonest_s=50.0)
    busy = workers(1, is_busy=True)
    (launch,) = Scaler(POLICY).decide(scene(workers=busy, demands=demand)).launches
    assert "predicted to wait 51.0 s" in launch.reason


def test_of_two_idle_workers_the_one_stays_that_a_task_could_go_to() -> None:
    scaler = Scaler(POLICY)
    nodes = (NODE, NodeRoom("n2", seats=8, labels={"disk": "ssd"}))
    there = (replace(worker(1), node_id="n2"), worker(2))
    stuck = waiting(1, constraint=FAST)
    found = [
        scaler.decide(scene(now, nodes=nodes, workers=there, demands=stuck))
        for now in (0, 60)
    ]
    assert [d.launches for d in found] == [(), ()]
    assert [retire.worker_id for retire in found[1].retires] == ["w2"]
    kept = (there[0], replace(there[1], is_kept=True))
    for now in (70, 200):
        later = scene(now, nodes=nodes, workers=kept, demands=stuck)
        assert scaler.decide(later).retires == ()


def test_between_two_changes_lies_the_cooldown() -> None:
    scaler, tight = Scaler(POLICY), (replace(KIND, most=1),)
    assert not scaler.decide(scene(0, workers=workers(3))).retires
    assert len(scaler.decide(scene(58, types=tight, workers=workers(3))).retires) == 2
    left = workers(1)
    assert not scaler.decide(scene(60, types=tight, workers=left)).retires
    assert scaler.decide(scene(63, types=tight, workers=left)).retires
