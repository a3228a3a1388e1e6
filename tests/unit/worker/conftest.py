"""Real runner processes for the worker's tests."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from corral.wire.orders import AttemptOutcome, Item
from corral.worker.pool.runner_pool import RunnerPool
from corral.worker.pool.runner_process import RunnerSpec
from corral.worker.pool.transport import RunnerLaunch
from corral.worker.supervisor.batch import OrderBatch
from corral.worker.supervisor.execution import Execution
from corral.worker.supervisor.reports import Notes
from tests.unit.worker.warm_runners import launch

ROOT = Path(__file__).parents[3]
SAMPLES = "tests.unit.worker.sample_workers"
_ids = itertools.count(1)


def item(payload: Any, *, task_id: str | None = None, **more: Any) -> Item:
    raw = msgspec.Raw(msgspec.json.encode(payload))
    return Item(task_id or f"t{next(_ids)}", 1, raw, "test", **more)


def value(outcome: AttemptOutcome) -> Any:
    """The decoded result of a completed attempt."""
    assert outcome.kind == "completed", outcome.error
    assert isinstance(outcome.result, msgspec.Raw)
    return msgspec.json.decode(outcome.result)


class Bench:
    """Runs batches on one real runner and keeps what was told on the way."""

    def __init__(
        self, worker_class: str, params: dict[str, Any], how: RunnerLaunch = launch
    ) -> None:
        path = worker_class if ":" in worker_class else f"{SAMPLES}:{worker_class}"
        self.pool = RunnerPool(RunnerSpec(path, params, launch=how), 1, lambda: None)
        self.pool.start()
        self.told: list[Notes] = []
        self.on_tell: Callable[[Notes], None] = lambda _: None
        # A busy machine must not turn a test of something else into an overrun.
        self.overrun_s = 30.0

    def warm(self) -> None:
        """Wait until the runner has started."""
        self.pool.release(self.pool.acquire())

    def run(self, *items: Item) -> list[AttemptOutcome]:
        return self.execute(OrderBatch(items)).outcomes

    def execute(self, batch: OrderBatch) -> Notes:
        runner = self.pool.acquire()
        try:
            execution = Execution(batch, runner, self._tell, overrun_s=self.overrun_s)
            return execution.run()
        finally:
            self.pool.release(runner)

    def _tell(self, notes: Notes) -> None:
        self.told.append(notes)
        self.on_tell(notes)
        notes.deliver()

    @property
    def handed_back(self) -> list[AttemptOutcome]:
        return [o for notes in self.told for o in notes.outcomes]


@pytest.fixture(autouse=True)
def _find_our_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{ROOT}")


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(worker_class: str, **params: Any) -> Bench:
        made.append(Bench(worker_class, params))
        return made[-1]

    yield make
    for each in made:
        each.pool.kill()
        each.pool.join()
