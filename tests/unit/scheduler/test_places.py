"""Nodes that are held, labelled or tainted: who gets what, and what the others say."""

from __future__ import annotations

from typing import Any

from corral.core.nodes.labels import Constraint
from corral.core.tasks.job_type import QueueOrder
from corral.scheduler.events import (
    NodeHeld,
    NodeMarked,
    OrderClosed,
    TasksGone,
    TasksQueued,
    TasksRan,
    TypeOrdered,
    WaitingTask,
    WorkerAway,
    WorkerGone,
    WorkerReady,
)
from corral.scheduler.plan import Plan, Reason
from corral.scheduler.scheduler import Scheduler

NOW = 1000.0
A = frozenset({"a"})


def task(task_id: str, seq: int = 1, job_type: str = "a", **more: Any) -> TasksQueued:
    return TasksQueued((WaitingTask(task_id, 1, job_type, seq, **more),))


def wants(*tolerates: str, **labels: str) -> Constraint:
    return Constraint(tuple(sorted(labels.items())), frozenset(tolerates))


def two_nodes(slots: int = 1) -> Scheduler:
    scheduler = Scheduler()
    for number in (1, 2):
        ready = WorkerReady(f"w{number}", f"n{number}", A, slots)
        scheduler.apply(ready)
    return scheduler


def placed(plan: Plan) -> dict[str, str]:
    return {t.task_id: o.worker_id for o in plan.orders for t in o.tasks}


def why(scheduler: Scheduler, task_id: str) -> Reason:
    reason = scheduler.why(task_id, NOW)
    assert reason is not None
    return reason


def mark(node_id: str, *taints: str, **labels: str) -> NodeMarked:
    return NodeMarked(node_id, labels, frozenset(taints))


def test_workers_of_a_held_node_are_not_chosen() -> None:
    scheduler = two_nodes()
    scheduler.apply(NodeHeld("n1", "cables"))
    scheduler.apply(task("x"))
    scheduler.apply(task("y"))
    assert placed(scheduler.plan(NOW)) == {"x": "w2"}
    assert why(scheduler, "y").reason == "workers_busy"
    scheduler.apply(NodeHeld("n1", None))
    assert placed(scheduler.plan(NOW)) == {"y": "w1"}


def test_a_worker_that_comes_up_on_a_held_node_gets_nothing() -> None:
    scheduler = Scheduler()
    scheduler.apply(NodeHeld("n1", "cables"))
    scheduler.apply(WorkerReady("w1", "n1", A))
    scheduler.apply(task("x"))
    assert placed(scheduler.plan(NOW)) == {}
    reason = why(scheduler, "x")
    assert (reason.reason, reason.details) == ("node_held", {"n1": "cables"})
    assert reason.message == "node n1 is held: cables"


def test_no_order_is_prepared_ahead_for_a_held_node() -> None:
    scheduler = Scheduler()
    scheduler.apply(WorkerReady("w1", "n1", A))
    scheduler.apply(TasksRan("a", "w1", 100, 0.1))
    tasks = tuple(WaitingTask(f"t{n}", 1, "a", n) for n in range(300))
    scheduler.apply(TasksQueued(tasks))
    assert len(scheduler.plan(NOW).orders) == 2
    scheduler.apply(NodeHeld("n1", "cables"))
    for _ in range(2):
        scheduler.apply(OrderClosed("w1"))
        assert scheduler.plan(NOW).orders == ()
    assert scheduler.open_orders("w1") == 0


def test_a_task_for_one_worker_waits_while_its_node_is_held() -> None:
    scheduler = two_nodes()
    scheduler.apply(NodeHeld("n1", "cables"))
    scheduler.apply(task("x", worker_id="w1"))
    assert placed(scheduler.plan(NOW)) == {}
    assert why(scheduler, "x").reason == "node_held"
    scheduler.apply(WorkerAway("w1", "n1", A))
    assert why(scheduler, "x").reason == "node_held"
    scheduler.apply(NodeHeld("n1", None))
    assert why(scheduler, "x").reason == "no_worker"
    scheduler.apply(WorkerReady("w1", "n1", A))
    assert placed(scheduler.plan(NOW)) == {"x": "w1"}


def test_workers_stopped_by_a_drain_are_still_the_reason() -> None:
    scheduler = Scheduler()
    scheduler.apply(WorkerReady("w1", "n1", A))
    scheduler.apply(NodeHeld("n1", "drained"))
    scheduler.apply(WorkerAway("w1", "n1", A))
    scheduler.apply(task("x"))
    assert why(scheduler, "x").reason == "node_held"
    scheduler.apply(WorkerGone("w1"))
    assert why(scheduler, "x").reason == "no_worker"


def test_a_task_goes_to_a_node_that_has_all_its_labels() -> None:
    scheduler = two_nodes(slots=4)
    scheduler.apply(mark("n1", rack="a"))
    scheduler.apply(mark("n2", rack="a", disk="ssd"))
    for name in ("x", "y"):
        scheduler.apply(task(name, constraint=wants(rack="a", disk="ssd")))
    scheduler.apply(task("z", constraint=wants(rack="b")))
    assert placed(scheduler.plan(NOW)) == {"x": "w2", "y": "w2"}
    reason = why(scheduler, "z")
    assert reason.reason == "node_labels"
    assert reason.details == {
        "wanted": ["rack=b"],
        "missing": {"n1": ["rack=b"], "n2": ["rack=b"]},
    }
    scheduler.apply(mark("n1", rack="b"))
    assert placed(scheduler.plan(NOW)) == {"z": "w1"}


def test_a_tainted_node_takes_only_tasks_that_tolerate_all_its_taints() -> None:
    scheduler = Scheduler()
    scheduler.apply(WorkerReady("w1", "n1", A, 8))
    scheduler.apply(mark("n1", "spot", "tier=a"))
    scheduler.apply(task("plain"))
    scheduler.apply(task("half", constraint=wants("spot")))
    scheduler.apply(task("other", constraint=wants("spot", "tier=b")))
    scheduler.apply(task("exact", constraint=wants("spot", "tier=a")))
    scheduler.apply(task("keys", constraint=wants("spot", "tier")))
    assert placed(scheduler.plan(NOW)) == {"exact": "w1", "keys": "w1"}
    assert why(scheduler, "plain").details == {"taints": {"n1": ["spot", "tier=a"]}}
    assert why(scheduler, "half").reason == "taints"
    assert "does not tolerate tier=a" in why(scheduler, "half").message
    scheduler.apply(mark("n1"))
    assert set(placed(scheduler.plan(NOW))) == {"plain", "half", "other"}


def test_who_tolerates_a_taint_may_also_go_elsewhere() -> None:
    scheduler = two_nodes()
    scheduler.apply(mark("n1", "spot"))
    for name in ("x", "y"):
        scheduler.apply(task(name, constraint=wants("spot")))
    assert set(placed(scheduler.plan(NOW)).values()) == {"w1", "w2"}


def test_who_names_a_worker_is_not_kept_away_by_its_nodes_taints() -> None:
    scheduler = two_nodes()
    scheduler.apply(mark("n1", "spot"))
    scheduler.apply(task("x", worker_id="w1"))
    assert placed(scheduler.plan(NOW)) == {"x": "w1"}


def test_priority_and_order_hold_across_queues_of_one_type() -> None:
    scheduler = Scheduler()
    scheduler.apply(WorkerReady("w1", "n1", A))
    scheduler.apply(mark("n1", rack="a"))
    strict = wants(rack="a")
    scheduler.apply(task("second", 2))
    scheduler.apply(task("first", 1, constraint=strict))
    scheduler.apply(task("urgent", 9, constraint=strict, priority=10))
    taken: list[str] = []
    for _ in range(3):
        taken += placed(scheduler.plan(NOW))
        scheduler.apply(OrderClosed("w1"))
    assert taken == ["urgent", "first", "second"]


def test_strict_tasks_count_and_are_cleared_with_their_type() -> None:
    scheduler = Scheduler()
    scheduler.apply(TypeOrdered("a", QueueOrder.STACK))
    for number in range(3):
        scheduler.apply(task(f"s{number}", number, constraint=wants(rack="a")))
    scheduler.apply(task("plain", 7))
    assert scheduler.waiting_by_type() == {"a": 4}
    assert sorted(scheduler.waiting_ids("a")) == ["plain", "s0", "s1", "s2"]
    scheduler.apply(WorkerReady("w1", "n1", A))
    scheduler.apply(mark("n1", rack="a"))
    scheduler.apply(TasksGone(("plain",)))
    assert placed(scheduler.plan(NOW)) == {"s2": "w1"}
    scheduler.apply(TypeOrdered("a", QueueOrder.FIFO))
    scheduler.apply(OrderClosed("w1"))
    assert placed(scheduler.plan(NOW)) == {"s0": "w1"}


def test_strict_tasks_of_a_short_type_travel_together() -> None:
    scheduler = Scheduler()
    scheduler.apply(WorkerReady("w1", "n1", A))
    scheduler.apply(mark("n1", rack="a"))
    scheduler.apply(TasksRan("a", "w1", 100, 0.1))
    strict = wants(rack="a")
    tasks = tuple(WaitingTask(f"t{n}", 1, "a", n, constraint=strict) for n in range(40))
    scheduler.apply(TasksQueued(tasks))
    assert [len(o.tasks) for o in scheduler.plan(NOW).orders] == [20, 20]


def test_queues_of_constraints_that_are_done_with_do_not_pile_up() -> None:
    scheduler = Scheduler()
    scheduler.apply(WorkerReady("w1", "n1", A))
    for number in range(500):
        constraint = wants(rack=f"r{number}")
        scheduler.apply(mark("n1", rack=f"r{number}"))
        scheduler.apply(task(f"t{number}", number, constraint=constraint))
        assert placed(scheduler.plan(NOW)) == {f"t{number}": "w1"}
        scheduler.apply(OrderClosed("w1"))
    assert len(scheduler._picture.lines) <= 64
    assert len(scheduler._picture.fleet.groups) == 1


def test_a_node_that_is_held_and_lacks_a_label_is_not_the_one_to_wait_for() -> None:
    scheduler = two_nodes()
    scheduler.apply(NodeHeld("n1", "cables"))
    scheduler.apply(task("x", constraint=wants(rack="a")))
    assert why(scheduler, "x").reason == "node_labels"
    scheduler.apply(mark("n1", rack="a"))
    assert why(scheduler, "x").reason == "node_held"
