"""Which models go elsewhere: from the full to the empty, only if it pays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.scheduler.events import (
    ModelKnown,
    ModelsPinned,
    NodeHeld,
    OrderClosed,
    TasksGone,
    TasksQueued,
    TasksRan,
    WaitingTask,
    WorkerReady,
)
from corral.scheduler.models.rebalance import Move, Strategy, duration_s
from corral.scheduler.scheduler import Policy, Scheduler
from tests.property_examples import examples

TYPE = frozenset({"draw"})
NOW = 100_000.0
MEMORY, LOAD = Strategy.MEMORY, Strategy.LOAD


class Scene:
    """Workers with models, and what was asked for lately."""

    def __init__(self, most_models: int = 5, **sizes: float) -> None:
        self.scheduler = Scheduler(Policy(most_models=most_models))
        self.sizes = sizes
        for name, size_mb in sizes.items():
            self.scheduler.apply(ModelKnown(name, size_mb, 10.0))
        self._count = 0

    def worker(
        self, name: str, *models: str, mb: float | None = 10.0, **more: Any
    ) -> None:
        told = {
            "memory_mb": mb,
            "models": frozenset(models),
            "is_telling": True,
            **more,
        }
        self.scheduler.apply(WorkerReady(name, f"n-{name}", TYPE, **told))

    def ask(self, model: str, count: int = 1, *, run_s: float = 20.0) -> None:
        """Tasks that came and were served; nothing of them is left but a memory."""
        for _ in range(count):
            self._count += 1
            name = f"t{self._count}"
            self.scheduler.apply(
                TasksQueued(
                    (
                        WaitingTask(
                            name, 1, "draw", self._count, model=model, arrived=NOW
                        ),
                    )
                )
            )
            for order in self.scheduler.plan(NOW).orders:
                ran = TasksRan("draw", order.worker_id, 1, run_s, model)
                self.scheduler.apply(ran)
                self.scheduler.apply(OrderClosed(order.worker_id))

    def moves(self, strategy: Strategy = MEMORY, **more: Any) -> tuple[Move, ...]:
        return self.scheduler.rebalance(NOW, strategy, **more)


def told(moves: Iterable[Move]) -> list[tuple[str, str, str]]:
    return [(move.model, move.from_worker, move.to_worker) for move in moves]


@pytest.mark.spec("C26")
def test_a_full_worker_gives_to_two_empty_ones() -> None:
    scene = Scene(a=2.5, b=2.5, c=2.5, d=2.5)
    scene.worker("w1", "a", "b", "c", "d")
    scene.worker("w2")
    scene.worker("w3")
    moves = scene.moves()
    assert {move.from_worker for move in moves} == {"w1"}
    assert {move.to_worker for move in moves} == {"w2", "w3"}
    assert len(moves) == 2
    for move in moves:
        assert move.saves_s > move.costs_s > 0.0
        assert not move.is_copy
    assert duration_s(moves) == 10.0


def test_workers_without_cards_are_evened_out_by_number() -> None:
    scene = Scene(most_models=4)
    scene.worker("w1", "a", "b", "c", "d", mb=None)
    scene.worker("w2", mb=None)
    moves = scene.moves()
    assert len(moves) == 2
    assert {move.to_worker for move in moves} == {"w2"}


def test_what_is_even_stays() -> None:
    scene = Scene(a=2.5, b=2.5)
    scene.worker("w1", "a")
    scene.worker("w2", "b")
    scene.worker("w3")
    assert scene.moves() == ()
    assert scene.moves(LOAD) == ()


def test_pinned_models_stay_and_the_rest_makes_room_for_them() -> None:
    scene = Scene(a=5.0, b=5.0)
    scene.worker("w1", "a", "b")
    scene.worker("w2")
    scene.scheduler.apply(ModelsPinned("w1", frozenset({"a"})))
    assert told(scene.moves()) == [("b", "w1", "w2")]
    scene.scheduler.apply(ModelsPinned("w1", frozenset({"a", "b"})))
    assert scene.moves() == ()


def test_busy_workers_are_left_alone_unless_forced() -> None:
    scene = Scene(a=5.0, b=5.0)
    scene.worker("w1", "a", "b", open_orders=1)
    scene.worker("w2")
    assert scene.moves() == ()
    assert len(scene.moves(force=True)) == 1
    scene = Scene(a=5.0, b=5.0)
    scene.worker("w1", "a", "b")
    scene.worker("w2", open_orders=1)
    assert scene.moves() == ()
    assert len(scene.moves(force=True)) == 1


def test_nothing_goes_to_a_held_node_even_by_force() -> None:
    scene = Scene(a=5.0, b=5.0)
    scene.worker("w1", "a", "b")
    scene.worker("w2")
    scene.scheduler.apply(NodeHeld("n-w2", "drained"))
    assert scene.moves(force=True) == ()


def test_models_only_go_to_workers_that_could_use_them() -> None:
    scene = Scene(a=5.0, b=5.0)
    scene.worker("w1", "a", "b")
    sings = frozenset({"sing"})
    scene.scheduler.apply(WorkerReady("w2", "n2", sings, memory_mb=10.0))
    assert scene.moves() == ()


@pytest.mark.spec("C59")
def test_one_card_is_emptied_for_a_model_that_fits_nowhere() -> None:
    scene = Scene(big=9.0, a=4.0, b=5.0)
    scene.worker("w1", "a")
    scene.worker("w2", "b")
    assert scene.moves() == ()
    task = WaitingTask("t", 1, "draw", 1, model="big", arrived=NOW)
    scene.scheduler.apply(TasksQueued((task,)))
    # It waits no longer, and has not been served: it is only known to be wanted.
    scene.scheduler.apply(TasksGone(("t",)))
    (move,) = scene.moves()
    assert (move.model, move.from_worker, move.to_worker) == ("a", "w1", "w2")
    scene.scheduler.apply(ModelsPinned("w1", frozenset({"a"})))
    assert told(scene.moves()) == [("b", "w2", "w1")]


def test_a_card_is_not_emptied_by_halves() -> None:
    scene = Scene(big=9.0, a=4.0, b=7.0)
    scene.worker("w1", "a")
    scene.worker("w2", "b")
    scene.ask("big")
    assert all(move.model != "a" for move in scene.moves())


@pytest.mark.spec("C26")
def test_a_hot_model_is_copied_to_an_idle_worker() -> None:
    scene = Scene(hot=5.0, cold=5.0)
    scene.worker("w1", "hot", "cold")
    scene.ask("hot", 200)
    scene.worker("w2")
    (move, *_) = scene.moves(LOAD)
    assert (move.model, move.to_worker, move.is_copy) == ("hot", "w2", True)
    assert move.saves_s > move.costs_s


def test_what_nobody_asks_for_is_not_copied() -> None:
    scene = Scene(a=2.0, b=2.0)
    scene.worker("w1", "a", "b")
    scene.worker("w2")
    assert scene.moves(LOAD) == ()


names = st.sampled_from([f"m{n}" for n in range(6)])
sizes = st.fixed_dictionaries({f"m{n}": st.floats(0.5, 8.0) for n in range(6)})
workers = st.lists(
    st.tuples(
        st.one_of(st.none(), st.floats(1.0, 20.0)),
        st.frozensets(names, max_size=4),
        st.integers(0, 1),
        st.frozensets(names, max_size=2),
    ),
    min_size=1,
    max_size=5,
)


@settings(deadline=None, max_examples=examples(60))
@given(
    sizes,
    workers,
    st.lists(st.tuples(names, st.integers(1, 40)), max_size=3),
    st.sampled_from(Strategy),
    st.booleans(),
)
def test_whatever_there_is_moves_fit_pins_stay_and_the_same_comes_out_twice(
    sizes: dict[str, float],
    workers: list[tuple[float | None, frozenset[str], int, frozenset[str]]],
    asked: list[tuple[str, int]],
    strategy: Strategy,
    force: bool,
) -> None:
    scenes = [Scene(most_models=4, **sizes) for _ in range(2)]
    held: dict[str, set[str]] = {}
    room: dict[str, float | None] = {}
    for number, (mb, models, busy, pinned) in enumerate(workers):
        name = f"w{number}"
        total, fit = 0.0, []
        for model in sorted(models):
            total += sizes[model]
            if mb is None or total <= mb:
                fit.append(model)
            else:
                total -= sizes[model]
        held[name], room[name] = set(fit), mb
        for scene in scenes:
            scene.worker(name, *fit, mb=mb, open_orders=busy)
            scene.scheduler.apply(ModelsPinned(name, pinned))
    for scene in scenes:
        for model, count in asked:
            tasks = tuple(
                WaitingTask(f"{model}-{n}", 1, "draw", n, model=model, arrived=NOW)
                for n in range(count)
            )
            scene.scheduler.apply(TasksQueued(tasks))
    one, two = (scene.moves(strategy, force=force) for scene in scenes)
    assert one == two
    came: defaultdict[str, set[str]] = defaultdict(set)
    for move in one:
        assert move.saves_s > 0.0
        assert move.from_worker != move.to_worker
        assert move.model in held[move.from_worker]
        assert move.model not in held[move.to_worker] | came[move.to_worker]
        came[move.to_worker].add(move.model)
        ends = [int(move.to_worker[1:])]
        if not move.is_copy:
            ends.append(int(move.from_worker[1:]))
            assert move.model not in workers[ends[1]][3]
        assert force or not any(workers[end][2] for end in ends)
    for name, new in came.items():
        # Before anything is dropped: what comes fits beside what is there.
        both, most_mb = held[name] | new, room[name]
        assert len(both) <= 4
        assert most_mb is None or sum(sizes[m] for m in both) <= most_mb + 1e-6
