"""A snapshot of a scheduler decides as the scheduler itself; a forged one does not."""

from __future__ import annotations

import io
import json
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import pytest

from corral.core.nodes.labels import Constraint
from corral.errors import InvalidField
from corral.scheduler.events import (
    ModelKnown,
    NodeMarked,
    OrderClosed,
    TasksQueued,
    TasksRan,
    WaitingTask,
    WorkerReady,
)
from corral.scheduler.scheduler import Policy, Scheduler
from corral.scheduler.snapshot import Snapshot, restore

STRATEGIES = ["smith", "least_loaded", "weighted_round_robin", "affinity"]


def through_json(value: object, without: object = None) -> Any:
    return restore(json.loads(json.dumps(list(Snapshot(value, without).lines()))))


def busy(strategy: str = "smith") -> Scheduler:
    """One with some of everything."""
    scheduler = Scheduler(Policy(strategy=strategy))
    scheduler.apply(NodeMarked("n1", {"rack": "a"}, frozenset(["spot"])))
    for number in range(3):
        scheduler.apply(ModelKnown(f"m{number}", 9000.0, 7.5))
    for number in range(4):
        name, node = f"w{number}", f"n{number % 2}"
        types = frozenset(["a", "b"])
        scheduler.apply(WorkerReady(name, node, types, speed=1.5, memory_mb=20_000.0))
    for number in range(40):
        task = WaitingTask(
            f"t{number}",
            1,
            "ab"[number % 2],
            number,
            priority=number % 3,
            run_after=1100.0 if number % 7 == 0 else 0.0,
            deadline=1200.0 if number % 11 == 0 else None,
            needs=frozenset(["t1"]) if number % 13 == 1 else frozenset(),
            constraint=Constraint((("rack", "a"),), frozenset(["spot"]))
            if number % 5 == 0
            else None,
            model=f"m{number % 3}" if number % 4 else None,
            arrived=1000.0 + number,
        )
        scheduler.apply(TasksQueued((task,)))
    scheduler.plan(1050.0)
    scheduler.apply(TasksRan("a", "w1", 1, 3.25, "m1"))
    return scheduler


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_restored_scheduler_decides_the_same(strategy: str) -> None:
    one = busy(strategy)
    two = through_json(one)
    assert two.waiting_count() == one.waiting_count() > 10
    for step in range(60):
        now = 1060.0 + 5 * step
        assert one.plan(now) == two.plan(now)
        for scheduler in (one, two):
            scheduler.apply(OrderClosed(f"w{step % 4}"))
    assert one.waiting_count() == two.waiting_count()


def test_what_changes_later_is_not_in_the_snapshot() -> None:
    one, two = busy(), busy()
    taken = Snapshot(one)
    for number in range(4):
        one.apply(OrderClosed(f"w{number}"))
    one.plan(1300.0)
    restored = restore(json.loads(json.dumps(list(taken.lines()))))
    for number in range(4):
        restored.apply(OrderClosed(f"w{number}"))
        two.apply(OrderClosed(f"w{number}"))
    assert restored.plan(1300.0) == two.plan(1300.0)


def test_collections_come_back_as_they_were() -> None:
    shared = ["same"]
    value = {
        "list": [1, 2.5, None, True, "ü"],
        "endless": [float("inf"), (float("-inf"),)],
        "tuple": (1, (2, "x")),
        ("a", 1): {3, 4},
        "frozen": frozenset(["x"]),
        "deque": deque([1, 2]),
        "counter": Counter(a=2),
        "ordered": OrderedDict(b=1, a=2),
        "default": defaultdict(int, a=1),
        "one": shared,
        "two": shared,
    }
    found = through_json(value)
    assert found == value
    assert [type(v) for v in found.values()] == [type(v) for v in value.values()]
    assert found["one"] is found["two"]


def test_what_is_to_be_left_out_is_left_out() -> None:
    hidden = object()
    assert through_json({"a": 1, "hidden": hidden}, hidden) == {"a": 1, "hidden": None}


def test_things_of_other_rooms_are_refused() -> None:
    with pytest.raises(TypeError, match="no snapshot can hold a StringIO"):
        Snapshot({"file": io.StringIO()})


@pytest.mark.parametrize(
    "lines",
    [
        [["os:system", {}]],
        [["corral.manager.app:Manager", {}]],
        [["corral.scheduler.snapshot:restore", {}]],
        [["corral.scheduler.snapshot:Counter", {}]],
        [["method", [1], "__class__"], ["corral.scheduler.world.fleet:FleetNode", {}]],
        [["enum", "corral.core.tasks.job_type:JobType", "x"]],
        [["list", [7]]],
        [["no such kind"]],
        [["corral.scheduler.world.fleet:FleetNode", {"no_such_field": 1}]],
        [[]],
        [],
    ],
)
def test_lines_that_name_anything_else_are_refused(lines: Any) -> None:
    with pytest.raises(InvalidField, match="no snapshot"):
        restore(lines)
