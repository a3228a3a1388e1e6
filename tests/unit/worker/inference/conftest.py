"""Tiny models made once, and workers that hold them in this process."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from corral.worker.base import Context
from corral.worker.inference import InferenceWorker
from tests.model_folder import Models, import_libraries


@pytest.fixture(scope="session", autouse=True)
def libraries() -> None:
    import_libraries()
    # They stay to the end, and a million objects are a second of every full collection.
    gc.freeze()


class Runner:
    """A runner's side of contexts: what tasks say, and which are cancelled."""

    def __init__(self) -> None:
        self.cancelled: set[str] = set()
        self.asked: dict[str, int] = {}
        self.cancel_at: dict[str, int] = {}
        self.chunks: dict[str, list[str]] = {}
        self.pieces: dict[str, list[Any]] = {}
        """The whole of what `chunks` has the text of."""
        self.went_on: dict[str, int] = {}
        self.patient: set[str] = set()
        self.fractions: list[float] = []

    def progress(self, task_id: str, attempt: int, fraction: float, text: str) -> None:
        self.fractions.append(fraction)

    def log(self, text: str) -> None:
        raise AssertionError(f"nobody asked for a log: {text}")

    def is_cancelled(self, task_id: str) -> bool:
        """Cancelled, or asked so often that it is now."""
        self.asked[task_id] = self.asked.get(task_id, 0) + 1
        if self.asked[task_id] >= self.cancel_at.get(task_id, 1 << 60):
            self.cancelled.add(task_id)
        return task_id in self.cancelled

    def on_stop(self, task_id: str, call: Callable[[str], None]) -> None:
        raise AssertionError("nobody asked for a call")

    def patience(self, task_id: str, attempt: int, seconds: float) -> None:
        self.patient.add(task_id)

    def emit(self, task_id: str, attempt: int, value: Any) -> None:
        self.chunks.setdefault(task_id, []).append(value["text"])
        self.pieces.setdefault(task_id, []).append(value)

    def go_on(self, task_id: str, attempt: int, count: int) -> None:
        self.went_on[task_id] = count

    def decode(self, text: Any) -> Any:
        raise AssertionError("there is nothing to decode")


class Served:
    """One worker in this process, with the test in its runner's place."""

    def __init__(self, **params: Any) -> None:
        self.runner = Runner()
        self.emitted: list[Any] = []
        """What an earlier attempt at whatever is asked has sent."""
        self.emitted_of: dict[str, list[Any]] = {}
        """The same for single tasks."""
        self.worker = InferenceWorker(**params)
        self.worker.start()

    def context(self, task_id: str, job_type: str, model: str | None) -> Context:
        emitted = self.emitted_of.get(task_id, self.emitted)
        return Context(self.runner, task_id, 1, job_type, model=model, emitted=emitted)

    def ask(self, job_type: str, model: str | None, payload: Any) -> Any:
        if model is not None:
            self.worker.load_model(model)
        self.worker.context = self.context("t", job_type, model)
        return self.worker.run(payload)

    def ask_all(self, job_type: str, model: str, payloads: list[Any]) -> list[Any]:
        """As one order; the tasks are t0, t1 and so on."""
        self.worker.load_model(model)
        self.worker.contexts = [
            self.context(f"t{i}", job_type, model) for i in range(len(payloads))
        ]
        return list(self.worker.run_batch(payloads))


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def serve(models: Models) -> Callable[..., Served]:
    def make(*names: str, **params: Any) -> Served:
        return Served(model_dir=models.have(*names), device="cpu", **params)

    return make
