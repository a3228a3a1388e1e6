"""The model hooks of a worker, called in the right order."""

from __future__ import annotations

import pytest

from corral.worker import Worker
from corral.worker.shelf import Shelf


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
    shelf = Shelf(worker, room=2)
    for name in ("a", "b", "a", "c", "a", "b"):
        shelf.need(name)
    assert worker.calls == ["+a", "+b", "-b", "+c", "-c", "+b"]


def test_a_model_that_does_not_load_is_not_held() -> None:
    worker = Holder()
    shelf = Shelf(worker, room=2)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no such weights"):
            shelf.need("broken")
    shelf.need("a")
    assert worker.calls == ["+a"]
