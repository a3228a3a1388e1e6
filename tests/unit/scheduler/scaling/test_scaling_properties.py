"""Whatever the load does: what autoscaling holds to, in a small virtual world."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from corral.scheduler.scaling.demand import Demand
from corral.scheduler.scaling.scaler import Scaler
from corral.scheduler.scaling.values import (
    NodeRoom,
    ScaledType,
    ScaledWorker,
    ScaledWorkerState,
    ScalingDecision,
    ScalingInput,
    ScalingPolicy,
)
from tests.property_examples import examples

POLICY = ScalingPolicy(wait_s=10, idle_s=20, cooldown_s=4, most=7)
STEP_S = 1.0
START_STEPS = 3


@dataclass
class Busy:
    """A worker: when it is up, and until when it runs something."""

    up_at: float
    free_at: float = 0.0
    is_leaving: bool = False


@dataclass
class World:
    """Tasks of one type that all take the same time, and workers that run them."""

    kind: ScaledType
    run_s: float
    seats: int = 20
    now: float = 0.0
    waiting: int = 0
    workers: dict[str, Busy] = field(default_factory=dict)
    scaler: Scaler = field(default_factory=lambda: Scaler(POLICY))
    twin: Scaler = field(default_factory=lambda: Scaler(POLICY))
    """It sees the same, and must say the same."""
    begun: int = 0

    def step(self, arrivals: int) -> ScalingDecision:
        self.now += STEP_S
        self.waiting += arrivals
        self._run()
        scene = self.scene()
        decision = self.scaler.decide(scene)
        assert decision == self.twin.decide(scene)
        for launch in decision.launches:
            name = f"w{self.begun:03}"
            self.begun += 1
            self.workers[name] = Busy(self.now + START_STEPS * STEP_S)
            assert launch.reason
        for retire in decision.retires:
            self.workers[retire.worker_id].is_leaving = True
        for name, worker in list(self.workers.items()):
            if worker.is_leaving and worker.free_at <= self.now:
                del self.workers[name]
        return decision

    def _run(self) -> None:
        for worker in self.workers.values():
            is_up = worker.up_at <= self.now and not worker.is_leaving
            if is_up and worker.free_at <= self.now and self.waiting:
                self.waiting -= 1
                worker.free_at = self.now + self.run_s

    def scene(self) -> ScalingInput:
        found = tuple(self._shown(name, w) for name, w in self.workers.items())
        serving = [w for w in found if w.standing is ScaledWorkerState.SERVING]
        demand = Demand(
            "a", self.waiting, 0.0, self.waiting * self.run_s, float(len(serving))
        )
        left = self.seats - len(found)
        return ScalingInput(
            self.now,
            (self.kind,),
            found,
            (NodeRoom("n", seats=left),),
            (demand,) if self.waiting else (),
            len(found),
        )

    def _shown(self, name: str, worker: Busy) -> ScaledWorker:
        standing = ScaledWorkerState.SERVING
        if worker.is_leaving:
            standing = ScaledWorkerState.LEAVING
        elif worker.up_at > self.now:
            standing = ScaledWorkerState.STARTING
        return ScaledWorker(
            name, self.kind.name, "n", standing, is_busy=worker.free_at > self.now
        )


limits = st.tuples(st.integers(0, 3), st.integers(1, 9)).filter(lambda t: t[0] <= t[1])
loads = st.lists(st.integers(0, 12), min_size=1, max_size=60)


@settings(max_examples=examples(40), deadline=None)
@given(limits, loads, st.sampled_from([0.5, 3.0, 30.0]))
def test_it_stays_within_its_limits_and_never_takes_a_worker_that_is_wanted(
    within: tuple[int, int], arrivals: list[int], run_s: float
) -> None:
    kind = ScaledType("t", frozenset({"a"}), *within)
    world = World(kind, run_s)
    for count in arrivals + [0] * 40:
        decision = world.step(count)
        assert len(world.workers) <= min(kind.most, POLICY.most)
        staying = sum(not w.is_leaving for w in world.workers.values())
        assert staying >= min(kind.least, POLICY.most)
        if decision.retires:
            assert world.waiting == 0
        # Only idle ones were asked to go, so none is left that still has to finish.
        assert staying == len(world.workers)
        assert not world.waiting or staying


@settings(max_examples=examples(30), deadline=None)
@given(limits, st.integers(1, 4), st.sampled_from([0.5, 2.0, 7.0]))
def test_a_constant_load_is_followed_without_flapping(
    within: tuple[int, int], each: int, run_s: float
) -> None:
    world = World(ScaledType("t", frozenset({"a"}), *within), run_s)
    late = []
    for number in range(200):
        decision = world.step(each)
        if number >= 100 and (decision.launches or decision.retires):
            late.append((number, decision))
    assert late == []


@settings(max_examples=examples(30), deadline=None)
@given(limits, st.integers(1, 12))
def test_after_the_last_task_it_goes_back_to_the_least(
    within: tuple[int, int], count: int
) -> None:
    kind = ScaledType("t", frozenset({"a"}), *within)
    world = World(kind, 2.0)
    world.step(count)
    for _ in range(100):
        world.step(0)
    assert world.waiting == 0
    assert len(world.workers) == kind.least
