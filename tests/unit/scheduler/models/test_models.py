"""What the scheduler believes of models, and what it drops for which."""

from __future__ import annotations

import pytest

from corral.scheduler.events import (
    MemoryChanged,
    ModelKnown,
    ModelsHeld,
    ModelsPinned,
    OrderClosed,
    TasksQueued,
    WaitingTask,
    WorkerReady,
)
from corral.scheduler.plan import PlannedOrder
from corral.scheduler.scheduler import Policy, Scheduler

TYPE = frozenset({"draw"})


class Shop:
    """One scheduler, with tasks numbered as they come."""

    def __init__(self, *sizes: tuple[str, float]) -> None:
        self.scheduler = Scheduler(Policy(order_max_tasks=1))
        for name, size_mb in sizes:
            self.scheduler.apply(ModelKnown(name, size_mb, 10.0))
        self.now = 1000.0
        self._count = 0

    def worker(self, name: str = "w", memory_mb: float = 10.0, **more: object) -> None:
        told = {"memory_mb": memory_mb, "is_telling": True, **more}
        self.scheduler.apply(WorkerReady(name, "n", TYPE, **told))  # type: ignore[arg-type]

    def ask(self, model: str | None, **more: object) -> WaitingTask:
        self._count += 1
        task = WaitingTask(
            f"t{self._count}", 1, "draw", self._count, model=model,
            arrived=self.now, **more,  # type: ignore[arg-type]
        )  # fmt: skip
        self.scheduler.apply(TasksQueued((task,)))
        return task

    def plan(self) -> tuple[PlannedOrder, ...]:
        self.now += 1.0
        return self.scheduler.plan(self.now).orders

    def serve(self, model: str, *held: str) -> PlannedOrder:
        """One task, to its end; the worker then says that it holds `held`."""
        self.ask(model)
        (order,) = self.plan()
        self.scheduler.apply(ModelsHeld("w", frozenset(held)))
        self.scheduler.apply(OrderClosed("w"))
        return order


def test_a_model_is_loaded_once_and_makes_room_by_dropping_another() -> None:
    shop = Shop(("a", 6.0), ("b", 6.0))
    shop.worker()
    assert shop.serve("a", "a").load == "a"
    assert shop.serve("a", "a").load is None
    swap = shop.serve("b", "b")
    assert (swap.load, swap.unload) == ("b", ("a",))


def test_an_order_that_never_got_through_has_loaded_and_dropped_nothing() -> None:
    shop = Shop(("a", 6.0), ("b", 6.0))
    shop.worker()
    shop.serve("a", "a")
    lost = shop.ask("b")
    assert shop.plan()[0].unload == ("a",)
    # Given back: the worker never heard of it, and says nothing new.
    shop.scheduler.apply(OrderClosed("w"))
    shop.scheduler.apply(TasksQueued((lost,)))
    again = shop.plan()[0]
    assert (again.load, again.unload) == ("b", ("a",))


def test_a_worker_with_an_order_on_its_way_may_still_say_what_it_had() -> None:
    shop = Shop(("a", 6.0), ("b", 6.0))
    shop.worker(slots=2)
    shop.serve("a", "a")
    shop.ask("b")
    assert shop.plan()[0].unload == ("a",)
    shop.scheduler.apply(ModelsHeld("w", frozenset({"a"})))
    shop.ask("b")
    second = shop.plan()[0]
    assert (second.load, second.unload) == (None, ())


def test_what_a_worker_dropped_by_itself_is_loaded_again() -> None:
    shop = Shop(("a", 6.0))
    shop.worker()
    shop.serve("a", "a")
    shop.scheduler.apply(ModelsHeld("w", frozenset()))
    assert shop.serve("a", "a").load == "a"


def test_a_pinned_model_is_never_dropped() -> None:
    shop = Shop(("a", 6.0), ("b", 6.0), ("c", 3.0))
    shop.scheduler.apply(ModelsPinned("w", frozenset({"a"})))
    shop.worker()
    shop.serve("a", "a")
    shop.ask("b")
    assert shop.plan() == ()
    assert shop.serve("c", "a", "c").unload == ()
    shop.scheduler.apply(ModelsPinned("w", frozenset()))
    (order,) = shop.plan()
    assert order.load == "b"
    assert "a" in order.unload


@pytest.mark.spec("C29")
def test_the_model_that_is_asked_for_most_is_kept() -> None:
    shop = Shop(("a", 5.0), ("b", 5.0), ("c", 5.0))
    shop.worker()
    for name in ("a", "a", "a", "b"):
        shop.serve(name, *(("a", "b") if name == "b" else ("a",)))
    assert shop.serve("c", "a", "c").unload == ("b",)


@pytest.mark.spec("C28")
def test_models_that_no_longer_fit_are_named_the_least_wanted_first() -> None:
    shop = Shop(("a", 3.0), ("b", 3.0), ("c", 3.0))
    shop.worker()
    shop.serve("a", "a")
    shop.serve("b", "a", "b")
    shop.serve("a", "a", "b")
    shop.serve("c", "a", "b", "c")
    assert shop.scheduler.surplus("w", shop.now) == ()
    shop.scheduler.apply(MemoryChanged("w", 7.0))
    assert shop.scheduler.surplus("w", shop.now) == ("b",)
    shop.scheduler.apply(MemoryChanged("w", 4.0))
    assert shop.scheduler.surplus("w", shop.now) == ("b", "c")
    shop.scheduler.apply(ModelsPinned("w", frozenset({"b"})))
    assert "b" not in shop.scheduler.surplus("w", shop.now)
    assert shop.scheduler.surplus("nobody", shop.now) == ()


def test_a_model_nobody_has_loaded_yet_gets_the_card_to_itself() -> None:
    shop = Shop(("a", 3.0), ("b", 3.0))
    shop.worker()
    shop.serve("a", "a")
    shop.serve("b", "a", "b")
    new = shop.serve("new", "new")
    assert (new.load, set(new.unload)) == ("new", {"a", "b"})
    shop.scheduler.apply(ModelKnown("new", None, 2.0))
    # Its size stays unknown, but now it is known to fit beside others.
    assert shop.serve("a", "a", "new").unload == ()
    assert shop.serve("b", "a", "b", "new").unload == ()


def test_a_model_larger_than_the_room_waits_until_there_is_more() -> None:
    shop = Shop(("large", 9.0))
    shop.worker(memory_mb=8.0)
    shop.ask("large")
    assert shop.plan() == ()
    shop.scheduler.apply(MemoryChanged("w", 10.0))
    assert shop.plan()[0].load == "large"


@pytest.mark.spec("C21")
def test_a_task_goes_to_the_worker_that_has_its_model() -> None:
    shop = Shop(("a", 6.0), ("b", 6.0))
    shop.worker("v")
    shop.worker("w", models=frozenset({"a"}))
    shop.worker("x")
    shop.ask("a")
    (order,) = shop.plan()
    assert (order.worker_id, order.load) == ("w", None)
