"""Models that are there before anybody asks: by habit, or those asked for most."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.scheduler.events import (
    ModelKnown,
    ModelsPinned,
    OrderClosed,
    TasksQueued,
    WaitingTask,
    WorkerReady,
)
from corral.scheduler.learn.demand_pattern import MOST_MODELS, Habit, Habits
from corral.scheduler.learn.estimate import Estimates
from corral.scheduler.policy import Policy
from corral.scheduler.scheduler import Scheduler
from corral.sim.machine import Machine
from corral.sim.simulation import Record, Simulation
from corral.sim.workload import Arrival, Model, Workload, workload
from tests.property_examples import examples

DAY_S = 86_400.0
TYPE = frozenset({"draw"})


def task(number: int, model: str, at: float, **more: Any) -> WaitingTask:
    return WaitingTask(f"t{number}", 1, "draw", number, model=model, arrived=at, **more)


def habit(*times: float, load_s: float = 1.0) -> Habit:
    found = Habit(task(0, "m", 0.0))
    for number, at in enumerate(times):
        found.note(task(number, "m", at), at, load_s)
    return found


# habits ----------------------------------------------------------------------
def test_a_rhythm_is_expected_again_after_four_bursts() -> None:
    assert habit(100.0, 200.0, 300.0).expected(310.0, 1.0) is None
    coming = habit(100.0, 200.0, 300.0, 400.0).expected(410.0, 1.0)
    assert coming is not None
    assert coming.at < 500.0 < coming.until
    assert coming.chance == 1.0


def test_tasks_of_one_burst_count_once() -> None:
    times = [at + n * 0.1 for at in (100.0, 200.0, 300.0, 400.0) for n in range(20)]
    coming = habit(*times).expected(450.0, 1.0)
    assert coming is not None
    assert coming.at < 500.0 < coming.until


def test_a_long_rhythm_is_seen_behind_a_short_one() -> None:
    hours = [3600.0 * n for n in range(1, 6)]
    times = [at + 30.0 * n for at in hours for n in range(5)]
    known = habit(*times)
    soon = known.expected(times[-1] + 1.0, 1.0)
    assert soon is not None
    assert soon.at < times[-1] + 30.0 < soon.until
    later = known.expected(times[-1] + 600.0, 1.0)
    assert later is not None
    assert later.at < 6 * 3600.0 < later.until


def test_a_rhythm_that_ended_is_given_up() -> None:
    known = habit(100.0, 200.0, 300.0, 400.0)
    missed = known.expected(560.0, 1.0)
    assert missed is not None
    assert missed.chance == 0.5
    assert known.expected(1000.0, 1.0) is None


def test_no_rhythm_is_seen_where_there_is_none() -> None:
    gaps = [3.0, 50.0, 7.0, 120.0, 15.0, 31.0, 4.0, 77.0, 200.0, 11.0]
    times = [100.0 + sum(gaps[:n]) for n in range(len(gaps) + 1)]
    assert habit(*times).expected(times[-1] + 1.0, 1.0) is None


def test_an_hour_of_the_day_is_expected_after_four_days() -> None:
    nine = 9 * 3600.0
    for days, is_known in ((3, False), (4, True)):
        times = [
            day * DAY_S + nine + gap
            for day in range(days)
            for gap in (n * n * 5.0 + n % 3 * 7.0 for n in range(18))
        ]
        before = days * DAY_S + nine - 60.0
        coming = habit(*times).expected(before, 60.0)
        assert (coming is not None and coming.at == before + 60.0) is is_known


def test_what_is_remembered_has_bounds() -> None:
    habits = Habits(Estimates())
    for number in range(MOST_MODELS * 2):
        for at in range(0, 4000, 40):
            habits.note(task(number, f"m{number}", float(at)))
    assert len(habits.models) == MOST_MODELS
    assert "m0" not in habits.models
    assert all(len(known.wakes) <= 32 for known in habits.models.values())


# loads -----------------------------------------------------------------------
class Shop:
    """A scheduler that is asked for what to load."""

    def __init__(self, mode: str, **sizes: float) -> None:
        self.scheduler = Scheduler(Policy(order_max_tasks=1, prefetch=mode))
        self._count = 0
        for name, size_mb in sizes.items():
            self.scheduler.apply(ModelKnown(name, size_mb, 10.0))

    def worker(self, name: str, *models: str, **more: Any) -> None:
        told = {"memory_mb": 10.0, "models": frozenset(models), **more}
        self.scheduler.apply(WorkerReady(name, f"n-{name}", TYPE, **told))

    def served(self, model: str, at: float, worker_id: str | None = None) -> None:
        self._count += 1
        wanted = task(self._count, model, at, worker_id=worker_id)
        self.scheduler.apply(TasksQueued((wanted,)))
        for order in self.scheduler.plan(at).orders:
            self.scheduler.apply(OrderClosed(order.worker_id))

    def loads(self, now: float) -> list[tuple[str, str]]:
        return [(x.worker_id, x.model) for x in self.scheduler.prefetch(now).loads]


def rhythmic(**more: Any) -> Shop:
    """`a` is asked for every 100 s; at 500 it is due again, and nobody has it."""
    shop = Shop("pattern", a=6.0, b=6.0)
    shop.worker("w1", **more)
    for at in (100.0, 200.0, 300.0, 400.0):
        shop.served("a", at)
    shop.worker("w1", **more)
    return shop


@pytest.mark.spec("C57")
def test_what_is_due_is_loaded_shortly_before_and_once() -> None:
    shop = rhythmic()
    early = shop.scheduler.prefetch(420.0)
    assert early.loads == ()
    assert early.next_wake is not None
    assert 420.0 < early.next_wake < 490.0
    assert shop.loads(early.next_wake) == [("w1", "a")]
    assert shop.loads(early.next_wake + 1.0) == []


def test_off_is_off() -> None:
    shop = Shop("off", a=6.0)
    shop.worker("w1")
    for at in (100.0, 200.0, 300.0, 400.0):
        shop.served("a", at)
    shop.worker("w1")
    assert shop.loads(488.0) == []


@pytest.mark.parametrize(
    "more",
    [
        {"open_orders": 1},
        {"memory_mb": 5.0},
        {"models": frozenset({"a"})},
    ],
    ids=["busy", "too small", "there already"],
)
def test_a_worker_that_is_busy_too_small_or_has_it_loads_nothing(
    more: dict[str, Any],
) -> None:
    shop = rhythmic()
    shop.scheduler.apply(WorkerReady("w1", "n-w1", TYPE, **{"memory_mb": 10.0, **more}))
    assert shop.loads(488.0) == []


def test_while_something_waits_nothing_is_loaded() -> None:
    shop = rhythmic()
    shop.scheduler.apply(TasksQueued((task(99, "a", 488.0),)))
    assert shop.loads(488.0) == []


def test_what_is_due_sooner_is_not_dropped_for_it() -> None:
    shop = Shop("pattern", a=6.0, b=6.0)
    shop.worker("w1")
    for n in range(1, 5):
        shop.served("a", n * 100.0)
        shop.served("b", n * 100.0 + 1.0)
    shop.worker("w1", "b")
    assert shop.loads(488.0) == []


def test_what_is_due_later_makes_room() -> None:
    shop = Shop("pattern", a=6.0, b=6.0)
    shop.worker("w1")
    for n in range(1, 5):
        shop.served("a", n * 100.0)
        shop.served("b", n * 100.0 + 50.0)
    shop.worker("w1", "b")
    assert shop.loads(488.0) == [("w1", "a")]


def test_pinned_models_make_no_room() -> None:
    shop = rhythmic(models=frozenset({"b"}))
    assert shop.loads(488.0) == [("w1", "a")]
    shop = rhythmic(models=frozenset({"b"}))
    shop.scheduler.apply(ModelsPinned("w1", frozenset({"b"})))
    assert shop.loads(488.0) == []


def test_by_rate_the_most_asked_for_comes_to_who_is_idle() -> None:
    shop = Shop("rate", hot=6.0, cold=6.0)
    shop.worker("w1", "hot", "cold", memory_mb=12.0)
    for n in range(20):
        shop.served("hot", 100.0 + n)
    shop.served("cold", 120.0)
    shop.worker("w2", memory_mb=6.0)
    shop.worker("w3", memory_mb=6.0, open_orders=1)
    assert shop.loads(121.0) == [("w2", "hot")]
    assert shop.loads(122.0) == []


def test_by_rate_nothing_goes_that_is_worth_half_as_much() -> None:
    shop = Shop("rate", one=6.0, two=6.0)
    shop.worker("w1", "one", memory_mb=6.0)
    for n in range(10):
        shop.served("one", 100.0 + n)
        shop.served("two", 100.0 + n)
    shop.worker("w1", "one", memory_mb=6.0)
    assert shop.loads(111.0) == []


@settings(deadline=None, max_examples=examples(60))
@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 60)), max_size=40),
    st.lists(st.floats(2.0, 20.0), min_size=1, max_size=3),
    st.sampled_from(["rate", "pattern"]),
    st.frozensets(st.sampled_from("abcd"), max_size=2),
)
def test_loads_fit_beside_pins_and_the_same_comes_out_twice(
    asked: list[tuple[str, int]],
    memory: list[float],
    mode: str,
    pins: frozenset[str],
) -> None:
    sizes = {"a": 1.0, "b": 3.0, "c": 5.0, "d": 8.0}
    shops = [Shop(mode, **sizes) for _ in range(2)]
    seen: list[list[list[tuple[str, str]]]] = [[], []]
    for shop, found in zip(shops, seen, strict=True):
        now = 1000.0
        for number, mb in enumerate(memory):
            shop.worker(f"w{number}", memory_mb=mb)
        shop.scheduler.apply(ModelsPinned("w0", pins))
        for model, gap in asked:
            now += gap
            shop.served(model, now)
            held = {w.worker_id: set(w.models) for w in shop.scheduler.workers()}
            loads = shop.loads(now + 0.5)
            found.append(loads)
            for worker_id, wanted in loads:
                number = int(worker_id[1:])
                kept = held[worker_id] & pins if worker_id == "w0" else set()
                room = memory[number] - sum(sizes[m] for m in kept)
                assert wanted not in held[worker_id]
                assert sizes[wanted] <= room
            assert len({worker_id for worker_id, _ in loads}) == len(loads)
    assert seen[0] == seen[1]


# in virtual time -------------------------------------------------------------
def rounds(models: str, period_s: float, count: int) -> Workload:
    """Every model has a burst of three tasks in each period, one after the other."""
    made: list[Arrival] = []
    step_s = period_s / len(models)
    for turn in range(count):
        for place, model in enumerate(models):
            at = 10.0 + turn * period_s + place * step_s
            for n in range(3):
                made.append(Arrival(task(len(made), model, at + n), 2.0))
    return workload(made, [Model(name, 6000.0, 20.0) for name in models])


def strewn(seed: int) -> Workload:
    """Tasks as chance has it, a few models asked for much more than the rest."""
    chance, at, made = random.Random(seed), 10.0, []
    for number in range(600):
        at += chance.expovariate(1 / 8.0)
        model = f"m{min(int(chance.paretovariate(0.8)), 12)}"
        made.append(Arrival(task(number, model, at), chance.uniform(2.0, 8.0)))
    return workload(made, [Model(f"m{n}", 6000.0, 25.0) for n in range(1, 13)])


def simulated(
    load: Workload, prefetch: str, workers: int = 1, memory_mb: float = 8000.0
) -> Record:
    machines = [Machine(f"w{n}", memory_mb) for n in range(workers)]
    return Simulation(load, machines, Policy(prefetch=prefetch)).run()


@pytest.mark.spec("C57")
@pytest.mark.parametrize(("models", "workers"), [("ab", 1), ("abc", 1), ("abcde", 2)])
def test_in_a_rhythm_fewer_tasks_wait_for_loads(models: str, workers: int) -> None:
    load = rounds(models, 300.0 * len(models), 20)
    plain, fetched = (simulated(load, mode, workers) for mode in ("off", "pattern"))
    assert plain.left == fetched.left == 0
    assert len(fetched.ended_s) == len(load.arrivals)
    # The first bursts of each are how the rhythm is learned.
    assert fetched.cold <= 0.4 * plain.cold
    assert _mean(fetched) < 0.5 * _mean(plain)
    # That it is over is seen when the rhythm is missed.
    assert fetched.loads <= plain.loads + 3 * len(models)


def test_without_a_rhythm_little_is_loaded_for_nothing() -> None:
    load = strewn(1)
    plain, rate, pattern = (
        simulated(load, mode, 4, 14_000.0) for mode in ("off", "rate", "pattern")
    )
    assert plain.left == rate.left == pattern.left == 0
    assert rate.cold <= plain.cold
    for record in (rate, pattern):
        assert record.loads <= 1.1 * plain.loads
        assert _mean(record) <= 1.05 * _mean(plain)


def _mean(record: Record) -> float:
    return sum(record.ended_s.values()) / len(record.ended_s)
