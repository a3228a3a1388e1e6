"""That a line is left to those who have its model is remembered; nothing changes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from corral.scheduler.decide.cost import CostModel
from corral.scheduler.plan import Plan
from corral.scheduler.policy import Policy
from corral.scheduler.scheduler import Scheduler
from corral.scheduler.world.fleet import FleetWorker
from corral.scheduler.world.late_tasks import SkippedLines
from corral.scheduler.world.line import TaskLine
from corral.sim.machine import failing, parse_fleet
from corral.sim.simulation import Simulation
from corral.sim.workload import synthetic


class Forgetful(CostModel):
    """Asks anew each time."""

    def is_left(self, worker: FleetWorker, line: TaskLine, now: float) -> bool:
        return False

    def not_left(
        self, worker: FleetWorker, lines: Iterable[TaskLine], now: float
    ) -> list[TaskLine]:
        return list(lines)

    def is_left_by_all(self, line: TaskLine, ahead: int, now: float) -> bool:
        return False


class Planning(Scheduler):
    """Keeps what it planned, and counts what it left to others."""

    def __init__(self, costs: type[CostModel]) -> None:
        super().__init__(Policy())
        self._costs.__class__ = costs
        self.plans: list[Plan] = []
        self.left = 0

    def plan(self, now: float, *, can_send: bool = True) -> Plan:
        plan = super().plan(now, can_send=can_send)
        self.left += sum(bool(f.left) for f in self._picture.lines.values())
        self.plans.append(plan)
        return plan


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_is_remembered_changes_no_decision(seed: int) -> None:
    work = synthetic(seed, tasks=400, models=20)
    fleet = failing(parse_fleet("6x24GB,3x48GB@1.5,3x20GB@0.6"), work.span_s, 60.0)
    one, two = Planning(CostModel), Planning(Forgetful)
    for scheduler in (one, two):
        Simulation(work.faster(0.6), fleet, scheduler=scheduler).run()
    assert one.plans == two.plans
    assert one.left > 100


def test_what_was_left_comes_again_in_its_time() -> None:
    again = SkippedLines()
    assert again.first is None
    assert again.due(10.0) == []
    again.set("a", 5.0)
    again.add(["a", "b", "c"], 7.0)
    assert again.first == 5.0
    assert again.due(4.9) == []
    assert again.due(5.0) == ["a"]
    assert again.first == 7.0
    again.set("b", 20.0)
    assert again.due(7.0) == ["c"]
    assert again.first == 20.0
    assert again.due(30.0) == ["b"]
    assert again.first is None
