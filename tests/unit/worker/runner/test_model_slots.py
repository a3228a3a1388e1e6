"""The model hooks of a worker, called in the right order."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from corral.agent.probe.simulated import SimulatedProbe
from corral.worker import Worker
from corral.worker.protocol import Frame, ModelLoadFrame, ModelsFrame
from corral.worker.runner.gpu_memory import GpuMemory
from corral.worker.runner.model_slots import ModelSlots, SharedModelSlots


class Holder(Worker):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def load_model(self, name: str) -> None:
        if name == "broken":
            raise RuntimeError("no such weights")
        self.calls.append(f"+{name}")

    def unload_model(self, name: str) -> None:
        self.calls.append(f"-{name}")


def test_a_model_is_loaded_once_and_the_least_used_makes_room() -> None:
    worker = Holder()
    shelf = ModelSlots(worker, room=2)
    for name in ("a", "b", "a", "c", "a", "b"):
        shelf.need(name)
    assert worker.calls == ["+a", "+b", "-b", "+c", "-c", "+b"]


def test_another_edition_takes_the_place_of_the_one_in_memory() -> None:
    worker, told = Holder(), list[Frame]()
    shelf = ModelSlots(worker, tell=told.append)
    for edition in ("first", "first", "", "second", "second"):
        shelf.need("a", edition)
    assert worker.calls == ["+a", "-a", "+a"]
    held = [[m.edition for m in f.held] for f in told if isinstance(f, ModelsFrame)]
    assert held == [["first"], ["second"]]


def test_lanes_that_share_a_model_are_through_before_another_edition_is_loaded() -> (
    None
):
    worker = Holder()
    shelf = SharedModelSlots(worker, None, lambda frame: None)
    shelf.need("a", "first")
    waits, has = threading.Event(), threading.Event()

    def other_lane() -> None:
        shelf.tell_by(lambda frame: waits.set())
        shelf.need("a", "second")
        has.set()

    lane = threading.Thread(target=other_lane, daemon=True)
    lane.start()
    assert waits.wait(60)
    assert worker.calls == ["+a"]
    shelf.leave()
    assert has.wait(60)
    lane.join(60)
    assert worker.calls == ["+a", "-a", "+a"]


def test_a_model_that_does_not_load_is_not_held() -> None:
    worker = Holder()
    shelf = ModelSlots(worker, room=2)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no such weights"):
            shelf.need("broken")
    shelf.need("a")
    assert worker.calls == ["+a"]


def test_what_is_dropped_is_told_and_loaded_again_when_it_is_needed() -> None:
    worker, told = Holder(), list[Frame]()
    shelf = ModelSlots(worker, tell=told.append)
    assert shelf.need("a") > 0.0
    assert shelf.need("a") == 0.0
    shelf.drop(["nobody", "a"])
    shelf.drop(["a"])
    shelf.need("a")
    assert worker.calls == ["+a", "-a", "+a"]
    held = [[m.name for m in f.held] for f in told if isinstance(f, ModelsFrame)]
    assert held == [["a"], [], ["a"]]
    assert [f.model for f in told if isinstance(f, ModelLoadFrame)] == ["a", "a"]


class Careless:
    """A class without any of the hooks."""


def test_a_class_without_hooks_may_be_given_tasks_with_models() -> None:
    shelf = ModelSlots(Careless())
    shelf.need("a")
    assert (shelf.names, shelf.sizes()) == (["a"], {})
    shelf.drop(["a"])
    assert shelf.names == []


class Clumsy(Holder):
    def unload_model(self, name: str) -> None:
        raise RuntimeError("it sticks")


def test_a_model_whose_unload_fails_is_not_used_again() -> None:
    worker = Clumsy()
    shelf = ModelSlots(worker, room=1)
    shelf.need("a")
    with pytest.raises(RuntimeError, match="it sticks"):
        shelf.need("b")
    assert shelf.names == []


class Sized(Holder):
    def model_memory_mb(self, name: str) -> float | None:
        return {"a": 1000.0, "b": 500.0}.get(name)


def test_models_of_known_size_fill_simulated_cards_while_they_are_held(
    tmp_path: Path,
) -> None:
    probe = SimulatedProbe("2x8GB", "n1", tmp_path)
    cards = ",".join(gpu.id for gpu in probe.read().gpus)
    given = {"CORRAL_GPUS": cards, "CORRAL_GPU_LEDGER": str(tmp_path)}
    shelf = ModelSlots(Sized(), room=1, memory=GpuMemory(given))

    def used() -> list[float | None]:
        return [gpu.memory_used_mb for gpu in probe.read().gpus]

    shelf.need("a")
    assert used() == [500.0, 500.0]
    shelf.need("b")
    assert used() == [250.0, 250.0]
    shelf.need("unknown")
    assert used() == [0.0, 0.0]


def test_models_on_real_cards_are_left_to_their_driver(tmp_path: Path) -> None:
    given = {"CORRAL_GPUS": "GPU-1", "CORRAL_GPU_LEDGER": str(tmp_path)}
    ModelSlots(Sized(), memory=GpuMemory(given)).need("a")
    assert list(tmp_path.iterdir()) == []
